"""Comparisons of two proportions: tests, an interval of their difference, and corrections for asking many questions.

mcnemar    of pairs, b are right only in the first run and c only in the second. If neither is better,
           b ~ Binomial(b + c, ½), so p = min(1, 2 P(X ≤ min(b, c)))                           McNemar 1947, exact
fell       the one-sided test of the same pairs, that the second run is worse: p = P(X ≤ c), X ~ Binomial(b + c, ½)
fisher     of different examples, two-sided                                                             Fisher 1934
newcombe   with Wilson's intervals (l₁, u₁) and (l₂, u₂) of the single accuracies and φ the correlation of the answers,
           d − √((a₂−l₂)² − 2φ(a₂−l₂)(u₁−a₁) + (u₁−a₁)²)  to  d + √((u₂−a₂)² − 2φ(u₂−a₂)(a₁−l₁) + (a₁−l₁)²)
                                                 Newcombe, Statistics in Medicine 1998, 17: 873-890 and 2635-2650
holm       step-down correction of p-values                                                               Holm 1979
permuted   one-sided p-values (1 + draws as extreme) / (1 + draws), ties counting
"""

from __future__ import annotations

import numpy as np
import scipy  # its stats are loaded at their first use
from scipy import special

from classwise.stats import intervals
from classwise.stats.intervals import Array

ROUNDING = 1e-12  # of sums of the same numbers in another order


def mcnemar(only_first: Array, only_second: Array) -> Array:
    """The two-sided p-value, element by element."""
    fewer = np.minimum(only_first, only_second)
    return np.asarray(np.minimum(1.0, 2 * special.bdtr(fewer.astype(float), only_first + only_second, 0.5)))


def fell(only_first: Array, only_second: Array) -> Array:
    """The one-sided p-value of the second run being worse, element by element."""
    return np.asarray(special.bdtr(only_second.astype(float), only_first + only_second, 0.5))


def fisher(right_first: Array, n_first: Array, right_second: Array, n_second: Array) -> Array:
    """The two-sided p-value, element by element; NaN where a run has no examples."""
    counts = zip(right_first, n_first, right_second, n_second, strict=True)
    tables = (np.array([[k, n - k], [j, m - j]]) if n and m else None for k, n, j, m in counts)
    return np.array([np.nan if table is None else scipy.stats.fisher_exact(table).pvalue for table in tables])


def newcombe(
    right_first: Array, n_first: Array, right_second: Array, n_second: Array, phi: Array, confidence: float = 0.95
) -> tuple[Array, Array]:
    """The interval for a₂ − a₁, element by element; NaN where a run has no examples. φ is 0 for different examples."""
    first, second = intervals.ratio(right_first, n_first), intervals.ratio(right_second, n_second)
    low_first, high_first = intervals.bounds(right_first, n_first, confidence)
    low_second, high_second = intervals.bounds(right_second, n_second, confidence)
    down = _add(second - low_second, high_first - first, phi)
    up = _add(high_second - second, first - low_first, phi)
    return second - first - down, second - first + up


def _add(one: Array, two: Array, phi: Array) -> Array:
    """√(x² − 2φxy + y²), written as a sum of squares so that rounding cannot make it negative."""
    return np.asarray(np.sqrt((one - phi * two) ** 2 + (1 - phi**2) * two**2))


def correlation_of_answers(both: Array, only_first: Array, only_second: Array, neither: Array) -> Array:
    """φ of two yes-no answers, moved towards 0 by n/2 in the numerator if it is positive (Newcombe's method 10)."""
    a, b, c, d = (np.asarray(x, dtype=np.float64) for x in (both, only_first, only_second, neither))
    product = a * d - b * c
    shrunk = np.where(product > 0, np.maximum(product - (a + b + c + d) / 2, 0), product)
    spread = np.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    return np.asarray(np.divide(shrunk, spread, out=np.zeros_like(spread), where=spread > 0))


def holm(p: Array) -> Array:
    """p-values corrected for all being tested at once; NaN stays NaN and does not count."""
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    corrected = np.full(len(p), np.nan)
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def permuted(drawn: Array, seen: float, rounding: float = ROUNDING, itself: int = 1) -> tuple[float, float]:
    """The share of draws at least, and at most, as large as what was seen; itself: 0 if it is among the draws."""
    high, low = (drawn >= seen - rounding).sum(), (drawn <= seen + rounding).sum()
    total = len(drawn) + itself
    return float((high + itself) / total), float((low + itself) / total)
