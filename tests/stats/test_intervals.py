from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from classwise.core.errors import UserError
from classwise.stats import intervals

SUPPORT = np.array([1, 1, 7, 7, 50, 50, 50, 1000, 1000])
CORRECT = np.array([0, 1, 0, 3, 0, 17, 50, 262, 999])


@pytest.mark.parametrize(("interval", "reference"), [("wilson", "wilson"), ("exact", "beta")])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_agrees_with_statsmodels(interval, reference, confidence):
    low, high = intervals.bounds(CORRECT, SUPPORT, confidence, interval)
    for at, (k, n) in enumerate(zip(CORRECT, SUPPORT, strict=True)):
        expected = proportion_confint(k, n, alpha=1 - confidence, method=reference)
        np.testing.assert_allclose((low[at], high[at]), expected, atol=1e-10)


@pytest.mark.parametrize("interval", ["wilson", "exact"])
def test_ends_are_exactly_zero_and_one(interval):
    low, high = intervals.bounds(np.array([0, 13]), np.array([13, 13]), 0.95, interval)
    assert low[0] == 0
    assert high[1] == 1


@pytest.mark.parametrize("interval", ["wilson", "exact"])
def test_no_example_is_nan(interval):
    low, high = intervals.bounds(np.array([0, 1]), np.array([0, 2]), 0.95, interval)
    np.testing.assert_array_equal(np.isnan([low, high]), [[True, False], [True, False]])


def test_exact_covers_at_least_the_stated_confidence():
    support, p = 30, np.linspace(0.01, 0.99, 99)
    correct = np.arange(support + 1)
    low, high = intervals.bounds(correct, np.full_like(correct, support), 0.9, "exact")
    held = (low[:, None] <= p) & (p <= high[:, None])
    assert (binom.pmf(correct[:, None], support, p) * held).sum(axis=0).min() >= 0.9


def test_sidak_intervals_hold_together():
    assert intervals.sidak(0.95, 10) ** 10 == pytest.approx(0.95)
    assert intervals.sidak(0.95, 1) == 0.95
    bonferroni = 1 - 0.05 / 10
    assert 0.95 < intervals.sidak(0.95, 10) < bonferroni


def test_bad_arguments_are_named():
    with pytest.raises(UserError, match=r"got 95\. Did you mean 0\.95\?"):
        intervals.bounds(np.array([1]), np.array([2]), 95)
    with pytest.raises(UserError, match="did you mean 'wilson'"):
        intervals.bounds(np.array([1]), np.array([2]), 0.95, "wislon")


def test_ratio_of_nothing_is_nan():
    np.testing.assert_array_equal(intervals.ratio(np.array([1, 0]), np.array([4, 0])), [0.25, np.nan])
