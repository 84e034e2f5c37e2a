"""Ranks by the worst class: p-values by hand, intervals from them, and that a false rejection is rare."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from classwise.stats import ranks
from classwise.stats.comparisons import holm


def answers(*right: int, of: int) -> np.ndarray:
    """The first so many of each class are right."""
    return np.concatenate([np.arange(of) < count for count in right])


LABEL = np.repeat([0, 1], 100)


def test_p_by_hand() -> None:
    """Class 0 gains 20 pairs, class 1 loses 5 but exceeds the other model's class 0 by far."""
    one, other = answers(60, 80, of=100), answers(40, 85, of=100)
    paired = 0.5**20  # no pair is the other's
    table = np.array([[80, 20], [40, 60]])
    unpaired = stats.fisher_exact(table, alternative="greater").pvalue
    assert ranks.p_better(one, other, LABEL) == pytest.approx(2 * max(paired, unpaired))
    assert ranks.p_better(other, one, LABEL) == 1  # its class 0 exceeds neither 60% nor 80%


def test_every_class_must_exceed_one_of_the_others() -> None:
    """The first model is far better in class 0 and no better than the other's worst in class 1."""
    one, other = answers(90, 42, of=100), answers(40, 42, of=100)
    assert ranks.p_better(one, other, LABEL) > 0.5


def test_a_single_class_is_mcnemars_test() -> None:
    one, other = np.arange(20) < 12, np.arange(20) >= 15
    expected = stats.binomtest(12, 17, alternative="greater").pvalue
    assert ranks.p_better(one, other, np.full(20, 7)) == pytest.approx(expected)


def test_all_pairs_are_corrected_together() -> None:
    models = np.stack([answers(90, 95, of=100), answers(60, 80, of=100), answers(58, 80, of=100)])
    p = ranks.compare_all(models, LABEL)
    raw = np.array([[np.nan if i == j else ranks.p_better(a, b, LABEL) for j, b in enumerate(models)]
                    for i, a in enumerate(models)])  # fmt: skip
    np.testing.assert_allclose(p, holm(raw.reshape(-1)).reshape(3, 3))
    low, high = ranks.intervals(p)
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [(1, 1), (2, 3), (2, 3)]


def test_intervals_by_hand() -> None:
    p = np.array([[np.nan, 0.01, 0.2], [1, np.nan, 0.9], [1, 0.04, np.nan]])
    assert [part.tolist() for part in ranks.intervals(p)] == [[1, 3, 1], [2, 3, 2]]
    assert [part.tolist() for part in ranks.intervals(p, alpha=0.005)] == [[1, 1, 1], [3, 3, 3]]


def test_ties_share_the_better_rank() -> None:
    assert ranks.competition(np.array([0.2, 0.5, 0.5, 0.1])).tolist() == [3, 1, 1, 4]


def test_equal_models_are_rarely_told_to_differ() -> None:
    """Two models of the same class accuracies, answers independent: all of a 95% interval's misses stay below 5%."""
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(3), 60)
    chance = np.array([0.3, 0.35, 0.8])[label]
    wrong = 0
    for _ in range(200):
        low, high = ranks.intervals(ranks.compare_all(draw.random((2, len(label))) < chance, label))
        wrong += bool((low > 1).any() or (high < 2).any())
    assert wrong / 200 <= 0.05


def test_a_large_difference_is_found() -> None:
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(10), 100)
    chance = np.stack([np.where(label == 3, worst, 0.7) for worst in (0.55, 0.25)])
    low, high = ranks.intervals(ranks.compare_all(draw.random(chance.shape) < chance, label))
    assert (low.tolist(), high.tolist()) == ([1, 2], [1, 2])
