from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from classwise.metrics import p_worst, worst
from classwise.stats import intervals

DRAWS = 2000
CASES = {
    "all tied": (np.full(10, 0.5), np.full(10, 100)),
    "clear worst": (np.array([0.2] + [0.8] * 9), np.full(10, 100)),
    "two close": (np.array([0.3, 0.33, 0.7, 0.9]), np.full(4, 300)),
    "unequal sizes": (np.array([0.3] * 5 + [0.35] * 5), np.array([20, 50, 100, 200, 400] * 2)),
    "near zero": (np.array([0.01] + [0.9] * 9), np.full(10, 100)),
}


def draw(case):
    p, support = CASES[case]
    return p, support, np.random.default_rng(1).binomial(support, p, size=(DRAWS, len(p)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_covers_the_lowest_true_accuracy(case, confidence):
    p, support, correct = draw(case)
    low, high = worst.bounds(correct, support, confidence)
    slack = 3 * np.sqrt(confidence * (1 - confidence) / DRAWS)
    assert ((low <= p.min()) & (p.min() <= high)).mean() >= confidence - slack
    tail = (1 - confidence) / 2
    assert (low > p.min()).mean() <= tail + slack
    assert (high < p.min()).mean() <= tail + slack


def test_the_interval_of_the_lowest_class_alone_would_not_cover():
    p, support, correct = draw("all tied")
    _, high = intervals.bounds(correct, support, 0.95, "exact")
    assert (p.min() <= high.min(axis=1)).mean() < 0.9


def test_bounds_are_no_wider_than_needed():
    """With ties the upper bound misses nearly as often as it may, with a clear worst class the lower one does."""
    p, support, correct = draw("all tied")
    _, high = worst.bounds(correct, support, 0.8)
    assert (high < p.min()).mean() > 0.03
    p, support, correct = draw("clear worst")
    low, _ = worst.bounds(correct, support, 0.8)
    assert (low > p.min()).mean() > 0.05


def test_by_hand(from_correct):
    result = worst.compute(from_correct([20, 12, 40], [50, 40, 50]), confidence=0.95)
    assert (result.number, result.name, result.value) == (1, "class 1", 0.3)
    low, _ = intervals.bounds(np.array([20, 12, 40]), np.array([50, 40, 50]), 0.95, "exact")
    # One-sided level for three upper bounds to hold together with 97.5%: 1 − 0.975^(1/3) = 0.0084.
    _, high = intervals.bounds(np.array([20, 12, 40]), np.array([50, 40, 50]), 1 - 2 * (1 - 0.975 ** (1 / 3)), "exact")
    assert (result.low, result.high) == (low.min(), high.min())
    assert result.low < 0.3 < result.high


def test_tiny_class_does_not_widen_the_upper_bound_to_one(from_correct):
    """0 of 1 correct is the lowest value, but the large class still bounds the minimum from above."""
    result = worst.compute(from_correct([0, 250], [1, 1000]))
    assert result.number == 0
    assert result.high < 0.3


def test_one_class_is_its_own_interval(make):
    result = worst.compute(make([1] * 10, [1] * 7 + [0] * 3, ["a", "b", "c"]))
    assert (result.name, result.value) == ("b", 0.7)
    np.testing.assert_allclose(
        (result.low, result.high), np.ravel(intervals.bounds(np.array([7]), np.array([10]), 0.95, "exact"))
    )


# ---- the classes that may be the worst -------------------------------------------------------------------------------


def outcomes(sizes, confidence):
    """Every outcome of classes of these sizes with the set it leads to: counts, (outcome, class)."""
    counts = np.stack(np.meshgrid(*(np.arange(n + 1) for n in sizes), indexing="ij"), -1).reshape(-1, len(sizes))
    return counts, np.array([worst.may_be_worst(count, np.array(sizes), confidence) for count in counts])


@pytest.mark.parametrize("sizes", [(12, 7), (5, 6, 4), (3, 8, 5)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_set_holds_a_truly_worst_class_as_often_as_it_says(sizes, confidence):
    """Not a simulation: the probability of every outcome is summed, for ties, near ties and clear cases."""
    counts, found = outcomes(sizes, confidence)
    for true in itertools.product((0.02, 0.3, 0.35, 0.6, 0.97), repeat=len(sizes)):
        chance = stats.binom.pmf(counts, sizes, true).prod(axis=1)
        for w in np.flatnonzero(np.array(true) == min(true)):
            assert chance[found[:, w]].sum() >= confidence - 1e-9, true


@pytest.mark.slow
def test_the_posterior_set_would_not():
    """The smallest set of posterior probability 0.8, which the verdict once named, misses the worst class too often."""
    sizes, true = (5, 6, 4), (0.6, 0.6, 0.97)
    counts, _ = outcomes(sizes, 0.8)
    missed = 0.0
    for count, chance in zip(counts, stats.binom.pmf(counts, sizes, true).prod(axis=1), strict=True):
        likely = p_worst.probabilities(count, np.array(sizes))
        order = np.argsort(-likely, kind="stable")
        chosen = order[: 1 + int(np.searchsorted(likely[order].cumsum(), 0.8))]
        missed += chance * (0 not in chosen)
    assert missed > 0.2


@pytest.mark.parametrize("sizes", [(12, 7), (5, 6, 4)])
def test_the_lowest_and_all_that_tie_with_it_are_always_in_the_set(sizes):
    counts, found = outcomes(sizes, 0.5)
    accuracies = counts / np.array(sizes)
    lowest = accuracies == accuracies.min(axis=1, keepdims=True)
    assert found[lowest].all()


def test_a_clear_worst_class_is_alone(from_correct):
    result = worst.compute(from_correct([18, 60, 70, 0], [100, 100, 100, 0]))
    assert (result.tied, result.possible) == (("class 0",), ("class 0",))


def test_the_set_by_hand(from_correct):
    """Fisher's one-sided p of 16 against 8 of 20 is 0.0112: above 0.05 / 9, not above 0.05 / 3."""
    p = stats.fisher_exact([[16, 4], [8, 12]], "greater").pvalue
    assert p == pytest.approx(0.0112, abs=1e-4)
    assert worst.compute(from_correct([8, 16, 16, 16], [20] * 4)).possible == ("class 0",)
    assert len(worst.compute(from_correct([8] + [16] * 9, [20] * 10)).possible) == 10


def test_a_thousand_classes_take_no_time(from_correct):
    correct = np.arange(1000) % 51
    found = worst.may_be_worst(correct, np.full(1000, 50))
    assert found[correct == 0].all()
    assert not found[correct > 20].any()


def test_ties_are_labelled():
    assert [worst.label(tied) for tied in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a, b", "3 classes tie"]
