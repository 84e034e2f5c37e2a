"""The baseline: no class may fall beyond chance, or by more than a margin, on the same images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.results.baseline import Baseline, detectable
from classwise.results.compare import compare

Make = Callable[..., Audit]
SIZE = (100, 100, 40)


@pytest.fixture
def before(audit_of: Make) -> Audit:
    return audit_of({"pgd-20": [60, 50, 20]}, SIZE, ("cat", "dog", "owl"))


def after(audit_of: Make, *right: int, **rest: Any) -> Audit:
    return audit_of({"pgd-20": list(right)}, SIZE, ("cat", "dog", "owl"), **rest)


def failed(baseline: Baseline, audit: Audit, confident: bool = False) -> list[str]:
    return [one.requirement for one in baseline.check(audit, confident)[0] if not one.passed]


def test_a_class_that_fell_beyond_chance_fails_and_the_others_hold(before: Audit, audit_of: Make) -> None:
    results, _ = Baseline(audit=before).check(after(audit_of, 60, 30, 22))
    assert [one.requirement for one in results if not one.passed] == ["class[dog]>=baseline"]
    sentence = next(one.sentence for one in results if not one.passed)
    assert "50.0% → 30.0%, −20.0 points under pgd-20, p < 0.001 after correction" in sentence
    assert [one.attack for one in results] == ["clean"] * 3 + ["pgd-20"] * 3


def test_the_same_audit_and_gains_hold(before: Audit, audit_of: Make) -> None:
    assert failed(Baseline(audit=before), before) == []
    assert failed(Baseline(audit=before), after(audit_of, 100, 100, 40)) == []


def test_clean_accuracy_may_not_fall_either(before: Audit, audit_of: Make) -> None:
    now = audit_of({"clean": [100, 60, 40], "pgd-20": [60, 50, 20]}, SIZE, ("cat", "dog", "owl"))
    assert failed(Baseline(audit=before), now) == ["clean.class[dog]>=baseline"]
    assert failed(Baseline(audit=before, attacks=["pgd-20"]), now) == []


@pytest.mark.parametrize("lost", range(16))
def test_the_fewest_images_that_can_be_found_are_what_the_note_says(before: Audit, audit_of: Make, lost: int) -> None:
    baseline = Baseline(audit=before, attacks=["pgd-20"])
    fewest = detectable(3, 0.05)
    assert bool(failed(baseline, after(audit_of, 60, 50 - lost, 20))) is (lost >= fewest)
    assert f"fewer than {fewest} images" in baseline.check(before)[1][0]


def test_classes_in_which_nothing_can_be_found_are_named(audit_of: Make) -> None:
    small = audit_of({"pgd-20": [60, 3]}, (100, 4), ("cat", "rare"))
    _, notes = Baseline(audit=small).check(small)
    assert "No fall can be found in rare" in notes[1]


def test_the_test_is_mcnemars_with_holm_over_every_class_and_attack(audit_of: Make) -> None:
    """Losses and gains: the last images of the first run against the first ones of the second."""
    one, two = (after(audit_of, *right) for right in ([60, 50, 20], [60, 35, 20]))
    frame = two.records.frame.copy()  # in the second run two dogs that were wrong are right
    gained = frame.index[(frame["attack"] == "pgd-20") & (frame["label"] == 1)][60:62]
    frame.loc[gained, "prediction"] = 1
    two = dataclasses.replace(two, records=dataclasses.replace(two.records, frame=frame))
    p = stats.binomtest(2, 17, 0.5, alternative="less").pvalue
    result = next(one for one in Baseline(audit=one).check(two)[0] if one.requirement == "class[dog]>=baseline")
    assert f"p = {6 * p:.3f}" in result.sentence  # six tests, this one the smallest
    assert result.passed is bool(6 * p >= 0.05)
    table = compare({"a": one, "b": two}).by_class()
    assert table.loc[table["class"] == "dog", "p"].item() == pytest.approx(2 * p)


def test_an_unchanged_model_rarely_fails(audit_of: Make) -> None:
    """Two audits with independent noise of the same accuracy: at most 5% of the gates may fail."""
    rng, base, fails = np.random.default_rng(0), after(audit_of, 50, 50, 20), 0
    frame = base.records.frame
    attacked = (frame["attack"] == "pgd-20").to_numpy()
    for _ in range(100):
        pair = []
        for _ in range(2):
            noisy = frame.copy()
            right = rng.random(attacked.sum()) < 0.5
            label = frame.loc[attacked, "label"]
            noisy.loc[attacked, "prediction"] = np.where(right, label, (label + 1) % 3)
            pair.append(dataclasses.replace(base, records=dataclasses.replace(base.records, frame=noisy)))
        fails += bool(failed(Baseline(audit=pair[0]), pair[1]))
    assert fails <= 5


class TestMargin:
    def test_only_a_larger_fall_fails(self, before: Audit, audit_of: Make) -> None:
        now = after(audit_of, 55, 30, 20)
        assert failed(Baseline(audit=before, margin=0.05), now) == ["class[dog]>=baseline-5%"]
        assert failed(Baseline(audit=before, margin=0.2), now) == []
        assert failed(Baseline(audit=before, margin=0.04), now) == [
            "class[cat]>=baseline-4%",
            "class[dog]>=baseline-4%",
        ]

    def test_a_confident_one_is_asked_of_the_lower_end(self, before: Audit, audit_of: Make) -> None:
        """Nothing changed, and the interval of the difference of 40 owls still reaches below −5 points."""
        now = after(audit_of, 60, 50, 19)
        assert failed(Baseline(audit=before, margin=0.05), now) == []
        results, _ = Baseline(audit=before, margin=0.05).check(now, confident=True)
        table = compare({"a": before, "b": now}).by_class().set_index("class")
        owl = next(one for one in results if one.requirement == "class[owl]>=baseline-5%")
        assert (owl.value, owl.passed) == (pytest.approx(table.loc["owl", "low"]), False)

    @pytest.mark.parametrize("margin", [-0.1, 1.0, "150%"])
    def test_impossible(self, tmp_path: Path, margin: Any) -> None:
        with pytest.raises(UserError, match="the margin is the fall that is allowed"):
            Baseline.of(tmp_path, margin)


def test_other_images_or_attacks_are_no_baseline(before: Audit, audit_of: Make) -> None:
    fewer = audit_of({"pgd-20": [60, 50, 20]}, (90, 100, 40), ("cat", "dog", "owl"))
    with pytest.raises(UserError, match=r"is no baseline for this run under clean: .*did not see the same examples"):
        Baseline(audit=fewer).check(before)
    with pytest.raises(UserError, match="not attacked in the same way"):
        Baseline(audit=audit_of({"fgsm": [60, 50, 20]}, SIZE, ("cat", "dog", "owl"))).check(before)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"margin": 0.1}, "a baseline needs a run"),
        ({"run": "x", "margn": 1}, "unknown setting of a baseline 'margn'; did you mean 'margin'"),
        ({"run": "nowhere"}, "holds no finished audit"),
    ],
)
def test_a_table_that_is_none(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Baseline.read(table)
