from __future__ import annotations

import numpy as np
import pytest

from classwise.metrics import intervals, worst

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
