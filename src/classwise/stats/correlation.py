"""Spearman's rank correlation of two columns of numbers, with an interval and a test: do they grow together?

ρ            correlation of the ranks, ties sharing theirs
interval     tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3)))                                Bonett & Wright 2000
p            the share of orders of one column in which ρ is at least (at most) as large, ties counting: of all orders
             up to seven pairs, else (1 + number) / (1 + orders drawn)

At ρ = ±1 the interval would have no width, however few the pairs: its inner end is then that of the next value there
is, of one pair of neighbours exchanged, 1 − 12 / (n (n² − 1)).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy  # its stats are loaded at their first use
from scipy import special

from classwise.stats.comparisons import ROUNDING, permuted
from classwise.stats.intervals import Array

_ALL_ORDERS = 7  # pairs of which every order is tried: 5040
_ORDERS = 9999
_AT_ONCE = 1_000_000  # numbers in memory


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """ρ with its interval, the one-sided p-values of "they grow together" and of the contrary, and the pairs."""

    rho: float
    low: float
    high: float
    p_greater: float
    p_less: float
    n: int

    def __str__(self) -> str:
        """In words; a number that does not exist is not shown as one."""
        if np.isnan(self.rho):
            return "Spearman undefined, one side being the same everywhere"
        ends = f"95% CI {self.low:.2f} to {self.high:.2f}" if np.isfinite(self.low) else "no interval"
        return f"Spearman {self.rho:.2f}, {ends}"


def correlation(x: Array, y: Array, confidence: float = 0.95) -> tuple[float, float, float]:
    """Spearman's ρ and its interval; NaN where a side has one value only, no interval under four pairs."""
    x, y = _pairs(x, y)
    n = len(x)
    if n < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan, math.nan, math.nan
    rho = float(scipy.stats.spearmanr(x, y).statistic)
    rho = float(np.sign(rho)) if abs(rho) > 1 - ROUNDING else rho
    if n < 4:
        return rho, math.nan, math.nan
    inner = float(np.clip(rho, -1 + 12 / (n * (n**2 - 1)), 1 - 12 / (n * (n**2 - 1)))) if abs(rho) == 1 else rho
    half = special.ndtri((1 + confidence) / 2) * np.sqrt((1 + inner**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(inner) + np.array([-half, half]))
    return rho, -1.0 if rho == -1 else float(low), 1.0 if rho == 1 else float(high)


def rank_test(x: Array, y: Array, seed: int = 0) -> Correlation:
    """The same with the test of whether they grow together, or against each other; p is NaN where ρ is."""
    rho, low, high = correlation(x, y)
    x, y = _pairs(x, y)
    if np.isnan(rho):
        return Correlation(rho=rho, low=low, high=high, p_greater=math.nan, p_less=math.nan, n=len(x))
    left, right = (scipy.stats.rankdata(side) - (len(x) + 1) / 2 for side in (x, y))
    found = float(left @ right)
    if len(x) <= _ALL_ORDERS:
        drawn, itself = np.array(list(itertools.permutations(right))) @ left, 0
    else:
        drawn, itself = _drawn(left, right, np.random.default_rng(seed)), 1
    rounding = ROUNDING * float(np.abs(left) @ np.abs(right))
    greater, less = permuted(drawn, found, rounding, itself)
    return Correlation(rho=rho, low=low, high=high, p_greater=greater, p_less=less, n=len(x))


def _drawn(left: Array, right: Array, generator: np.random.Generator) -> Array:
    """⟨left, right⟩ for random orders of `right`, some at a time."""
    at_once = max(1, _AT_ONCE // len(right))
    parts = [
        generator.permuted(np.tile(right, (min(at_once, _ORDERS - begin), 1)), axis=1) @ left
        for begin in range(0, _ORDERS, at_once)
    ]
    return np.concatenate(parts)


def _pairs(x: Array, y: Array) -> tuple[Array, Array]:
    """Those of which both sides are numbers."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    seen = np.isfinite(x) & np.isfinite(y)
    return x[seen], y[seen]
