"""Spearman's ρ and its interval, by hand and against coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from classwise.stats.correlation import correlation, rank_test


def test_by_hand() -> None:
    # Σd² = 4, so ρ = 1 − 6·4 / (5·24) = 0.8; artanh 0.8 = 1.0986, half a width 1.95996 √(1.32/2) = 1.5923.
    rho, low, high = correlation(np.arange(5.0), np.array([2.0, 1, 4, 3, 5]))
    assert (rho, low, high) == pytest.approx((0.8, math.tanh(1.0986 - 1.5923), math.tanh(1.0986 + 1.5923)), abs=1e-4)


def test_where_there_is_little_to_correlate() -> None:
    steady = np.ones(5)
    assert all(map(math.isnan, correlation(np.arange(5.0), steady)))
    rho, low, _ = correlation(np.array([1.0, 2, 3, np.nan]), np.array([3.0, 2, 1, 0]))
    assert rho == -1
    assert math.isnan(low)


def test_a_perfect_order_of_few_is_not_taken_for_certain() -> None:
    # n = 4: the next value below 1 is 1 − 12/60 = 0.8; artanh 0.8 = 1.0986, half a width 1.95996 √1.32 = 2.2518.
    assert correlation(np.arange(4.0), np.arange(4.0) ** 3) == pytest.approx(
        (1, math.tanh(1.0986 - 2.2518), 1), abs=1e-4
    )
    rho, low, high = correlation(np.arange(4.0), -np.arange(4.0))
    assert (rho, low, high) == pytest.approx((-1, -1, math.tanh(2.2518 - 1.0986)), abs=1e-4)
    assert correlation(np.arange(100.0), np.arange(100.0))[1] > 0.99


def test_the_interval_covers_the_truth() -> None:
    """Of normal pairs with correlation r, Spearman's ρ is (6/π) arcsin(r/2)."""
    rng, r = np.random.default_rng(0), 0.6
    truth = 6 / math.pi * math.asin(r / 2)
    pairs = stats.multivariate_normal([0, 0], [[1, r], [r, 1]]).rvs((400, 30), random_state=rng)
    found = [correlation(x, y) for x, y in pairs.transpose(0, 2, 1)]
    inside = np.mean([low <= truth <= high for _, low, high in found])
    assert inside == pytest.approx(0.95, abs=0.03)


def test_the_test_counts_every_order_of_few() -> None:
    """Spearman falls as Σd² grows, which of 2, 1, 4, 3, 5 is 4."""
    found = rank_test(np.arange(5.0), np.array([2.0, 1, 4, 3, 5]))
    squares = [
        sum((a - b) ** 2 for a, b in zip(order, range(5), strict=True)) for order in itertools.permutations(range(5))
    ]
    assert found.p_greater == pytest.approx(np.mean(np.array(squares) <= 4))
    assert found.p_less == pytest.approx(np.mean(np.array(squares) >= 4))
    assert rank_test(np.arange(5.0), np.arange(5.0)).p_greater == pytest.approx(1 / 120)
    assert rank_test(np.arange(4.0), np.arange(4.0)).p_greater > 0.025


def test_ties_speak_for_neither_direction() -> None:
    """One class of ten has an error: every order that leaves it where it is shows the same ρ."""
    one = np.zeros(10)
    one[0] = 1
    found = rank_test(one, one)
    assert found.rho == 1
    assert found.p_greater == pytest.approx(0.1, abs=0.01)
    assert found.p_less == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_under_no_relation_the_test_keeps_its_level() -> None:
    rng = np.random.default_rng(1)
    found = [rank_test(rng.integers(4, size=9), rng.integers(4, size=9), seed=n) for n in range(300)]
    for tail in ("p_greater", "p_less"):
        assert np.mean([getattr(each, tail) <= 0.05 for each in found]) <= 0.08


def test_what_is_not_defined_is_shown_as_no_number() -> None:
    assert str(rank_test(np.ones(5), np.arange(5.0))) == "Spearman undefined, one side being the same everywhere"
    assert str(rank_test(np.arange(3.0), np.arange(3.0))) == "Spearman 1.00, no interval"
