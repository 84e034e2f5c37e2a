"""Numbers of trainings repeated with seeds, against plain computations and against coverage."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.metrics import difference, rho
from classwise.stats.intervals import Estimate
from classwise.studies.shared import over_seeds
from classwise.studies.shared.over_seeds import AVERAGE, change_of


def records(correct: np.ndarray) -> Records:
    """Images of classes a, b, … with these answers; correct: (classes, images of each)."""
    classes, each = correct.shape
    label = np.repeat(np.arange(classes), each)
    frame = pd.DataFrame(
        {
            "index": np.arange(len(label)),
            "label": label,
            "attack": "pgd",
            "prediction": np.where(correct.ravel(), label, (label + 1) % classes),
            **dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0),
        }
    )
    return Records(frame, Meta(class_names=tuple("abcdef"[:classes]), attacks={"pgd": AttackInfo()}))


def drawn(rng: np.random.Generator, p: list[float], each: int, seeds: int, wobble: float = 0.0) -> list[Records]:
    """Runs of so many seeds: images of fixed difficulty, and seeds that make a class easier or harder."""
    hard = rng.random((len(p), each))
    shift = wobble * rng.standard_normal((seeds, len(p), 1))
    return [records(0.5 * (hard + rng.random(hard.shape)) < np.array(p)[:, None] + shift[s]) for s in range(seeds)]


def test_one_seed_is_the_paired_difference() -> None:
    rng = np.random.default_rng(0)
    (base,), (run,) = drawn(rng, [0.5, 0.7, 0.3], 40, 1), drawn(rng, [0.6, 0.5, 0.3], 40, 1)
    found, direct = over_seeds.changes([base], [run]), difference.compute(base, run)
    np.testing.assert_allclose(found["change"][:3], direct["difference"][:3])
    np.testing.assert_allclose(found[["low", "high"]][:3], direct[["low", "high"]][:3])
    np.testing.assert_allclose(found["p_holm"][:3], direct["p_holm"][:3])
    mean = change_of(found)
    assert mean.value == pytest.approx(direct["difference"][:3].mean())
    assert mean.low < mean.value < mean.high


def test_a_change_within_the_margin_is_no_gain() -> None:
    tiny, some = Estimate(0.001, -0.01, 0.012, 500), Estimate(0.01, -0.01, 0.03, 500)
    assert over_seeds.falls(tiny, 1).verdict == "not decided here"
    assert over_seeds.falls(tiny, 1, margin=0.02).verdict == "held"
    assert over_seeds.falls(tiny, 1, margin=0.02).test.endswith("margin 2 points, two-sided 5%")
    assert over_seeds.falls(some, 1, margin=0.02).verdict == "not decided here"


def test_several_seeds_by_hand() -> None:
    """Two images, two seeds, one class moved: both images by the first, one by the second, so they share no error."""
    base = [records(np.array([[0, 0], [1, 1]], dtype=bool))] * 2
    runs = [records(np.array(rows, dtype=bool)) for rows in ([[1, 1], [1, 1]], [[1, 0], [1, 1]])]
    found = over_seeds.changes(base, runs)
    seed, freedom = np.var([1, 0.5], ddof=1) / 2, 1
    half = stats.t.ppf(0.975, freedom) * math.sqrt(seed)
    assert found["change"].tolist() == [0.75, 0, 0.375]
    assert change_of(found, "a").low == pytest.approx(max(0.75 - half, -1))
    assert change_of(found, "b").high == 0
    assert found["p_holm"][0] == pytest.approx(2 * 2 * stats.t.sf(0.75 / math.sqrt(seed), freedom))


@pytest.mark.slow
def test_the_interval_over_seeds_covers_the_truth() -> None:
    """Where seeds wobble, one seed's interval misses what the next seed gives; that over seeds does not."""
    rng = np.random.default_rng(1)
    missed = np.zeros(2)
    for _ in range(25):
        base, runs = drawn(rng, [0.5, 0.5], 100, 4, wobble=0.1), drawn(rng, [0.5, 0.5], 100, 4, wobble=0.1)
        for place, seeds in enumerate((1, 4)):
            own = change_of(over_seeds.changes(base[:seeds], runs[:seeds]), "a")
            missed[place] += not own.low <= 0 <= own.high
    assert missed[0] >= 7
    assert missed[1] <= 3


def test_classes_that_gain_and_lose() -> None:
    rng = np.random.default_rng(2)
    (base,), (run,) = drawn(rng, [0.5, 0.5, 0.5], 300, 1), drawn(rng, [0.8, 0.2, 0.5], 300, 1)
    assert over_seeds.changes([base], [run])["effect"].tolist() == ["gains", "loses", "", ""]


def test_levels_are_percentages_of_means() -> None:
    rng = np.random.default_rng(3)
    base, runs = drawn(rng, [0.5, 0.8], 50, 2), drawn(rng, [0.6, 0.7], 50, 2)
    found = over_seeds.level(runs, base)
    accuracies = np.array([run.correct.reshape(2, 50).mean(axis=1) for run in runs])
    assert found["average (%)"] == pytest.approx(100 * accuracies.mean())
    assert found["worst (%)"] == pytest.approx(100 * accuracies.min(axis=1).mean())
    assert found["CV (%²)"] == pytest.approx((100 * accuracies).var(axis=1).mean())
    assert found["rho"] == pytest.approx(np.mean([rho.compute(r, b) for r, b in zip(runs, base, strict=True)]))
    assert found["rho low"] <= found["rho"] <= found["rho high"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_worst_class_may_be_another(seeds: int) -> None:
    rng = np.random.default_rng(4)
    base, runs = drawn(rng, [0.3, 0.7], 400, seeds), drawn(rng, [0.7, 0.5], 400, seeds)
    found = over_seeds.worst_change(base, runs)
    lowest = [[run.correct.reshape(2, 400).mean(axis=1).min() for run in side] for side in (base, runs)]
    assert found.value == pytest.approx(np.mean(lowest[1]) - np.mean(lowest[0]))
    assert 0 < found.low < found.value < found.high


def test_by_class_has_an_average_row_only_in_changes() -> None:
    runs = drawn(np.random.default_rng(5), [0.4, 0.6], 30, 2)
    assert over_seeds.by_class(runs)["class"].tolist() == ["a", "b"]
    assert over_seeds.changes(runs, runs)["class"].tolist() == ["a", "b", AVERAGE]
    assert (over_seeds.changes(runs, runs)["change"] == 0).all()


def test_a_change_of_a_share_is_never_beyond_one() -> None:
    """Two seeds that disagree leave Student's t a single degree of freedom."""
    base, runs = drawn(np.random.default_rng(6), [0.5, 0.5], 4, 2), drawn(np.random.default_rng(7), [0.1, 0.9], 4, 2)
    table = over_seeds.changes(base, runs)
    assert table["low"].min() >= -1
    assert table["high"].max() <= 1
    change = over_seeds.worst_change(base, runs)
    assert -1 <= change.low <= change.high <= 1
    assert change.support == 4


def test_a_change_without_an_interval_shows_no_number_for_it() -> None:
    assert over_seeds.points(Estimate(0.1, math.nan, math.nan, 5)) == "+10.0 points, no interval"
