"""CV and MCD of one run against another: by hand, and by whether the intervals cover the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from classwise.metrics import cv, mcd, widening

SPREAD = np.array([0.5, 0.75, 0.35, 0.2, 0.3, 0.4, 0.55, 0.5, 0.6, 0.55])
NARROW = np.array([0.95, 0.97, 0.9, 0.8, 0.92, 0.85, 0.97, 0.95, 0.97, 0.95])


def test_the_variance_without_chance_by_hand(from_correct):
    # CV of 0.9 and 0.5 is 400; chance (1 − 1/2) · (0.09/9 + 0.25/9)/2 = 0.0094444.
    assert widening.unbiased(from_correct([9, 5], 10)) == pytest.approx(400 - 94.4444, abs=1e-3)


def test_the_variance_without_chance_is_unbiased(from_correct):
    rng = np.random.default_rng(0)
    drawn = [from_correct(rng.binomial(30, SPREAD), 30) for _ in range(100)]
    truth = 100**2 * SPREAD.var()
    found = np.array([widening.unbiased(records) for records in drawn])
    assert found.mean() == pytest.approx(truth, abs=4 * found.std() / 10)
    assert np.mean([cv.compute(records) for records in drawn]) > truth + 4 * found.std() / 10


def test_a_run_against_itself_is_no_wider(from_correct):
    records = from_correct([900, 700, 500], 1000)
    found = widening.compute(records, records)
    assert (found.ratio, found.ratio_low, found.ratio_high) == pytest.approx((1, 1, 1))
    assert found.gap == 0
    assert found.gap_low < 0 < found.gap_high


@pytest.mark.slow
def test_the_interval_of_the_ratio_covers_the_truth(from_correct):
    rng, n = np.random.default_rng(1), 300
    truth = SPREAD.var() / NARROW.var()
    inside = 0
    for _ in range(20):
        pair = (from_correct(rng.binomial(n, p), n) for p in (SPREAD, NARROW))
        found = widening.compute(*pair)
        inside += found.ratio_low <= truth <= found.ratio_high
    assert inside >= 17


def test_equal_classes_are_not_said_to_be_wider(from_correct):
    """Chance parts classes at 50% more than classes at 95%: the plain ratio of CV would be near 5."""
    rng, n, claimed = np.random.default_rng(2), 100, 0
    for _ in range(15):
        pair = (from_correct(rng.binomial(n, p, size=10), n) for p in (0.5, 0.95))
        claimed += widening.compute(*pair).ratio_low > 1
    assert claimed <= 1


def test_there_is_no_upper_end_where_the_base_may_be_flat(from_correct):
    found = widening.compute(from_correct([90, 50, 10], 100), from_correct([80, 80, 81], 100))
    assert found.base_cv < 0
    assert found.ratio == found.ratio_high == math.inf
    assert found.ratio_low > 1


def test_the_interval_of_the_gap_covers_the_truth(from_correct):
    rng, n = np.random.default_rng(3), 50
    flat = np.full(10, 0.5)
    for p in (SPREAD, flat):
        found = [widening.gap(from_correct(rng.binomial(n, p), n)) for _ in range(40)]
        assert sum(each.low <= np.ptp(p) <= each.high for each in found) >= 38
    assert found[0].value > 0.1  # though no class is better than another


def test_the_gap_is_mcd(from_correct):
    records = from_correct([9, 5, 7], 10)
    assert widening.gap(records).value == mcd.compute(records)
    change = widening.compute(records, from_correct([6, 5, 5], 10))
    assert change.gap == pytest.approx(0.3)
