"""Difference of two runs, class by class and over all: with an interval, and a test of whether it is chance.

d = a₂ − a₁, the accuracy of the second run minus that of the first. The interval is Newcombe's (1998, "square and
add"): with Wilson's (l₁, u₁) and (l₂, u₂) of the single accuracies,

    d − √((a₂−l₂)² − 2φ(a₂−l₂)(u₁−a₁) + (u₁−a₁)²)    to    d + √((u₂−a₂)² − 2φ(u₂−a₂)(a₁−l₁) + (a₁−l₁)²)

paired     runs of the same examples: φ is the correlation of their answers (Statistics in Medicine 17: 2635-2650,
           method 10, φ shrunk by its continuity correction), p the exact McNemar test of `metrics.paired`.
unpaired   runs of different examples: φ = 0 (17: 873-890, method 10), p the two-sided exact test of Fisher (1934).

`p_holm` is corrected by Holm (1979) over the classes that have examples in both runs; the row over all examples asks
one question of its own. Interval and test are different constructions and may disagree by a hair at the border.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics import paired as pairing
from classwise.stats import intervals
from classwise.stats.intervals import Array

ALL = pairing.ALL


def compute(records: Records, other: Records, paired: bool = True, confidence: float = 0.95) -> pd.DataFrame:
    """One row per class and a last one, "(all)"; a class without examples in both is NaN.

    Columns: class, n_first, n_second, first, second (accuracies), difference, low, high, p, p_holm.
    """
    if records.class_names != other.class_names:
        raise UserError("the two runs do not have the same classes in the same order; compare runs of one data set.")
    right_first, n_first, right_second, n_second, phi, p = (_paired if paired else _unpaired)(records, other)
    first, second = intervals.ratio(right_first, n_first), intervals.ratio(right_second, n_second)
    low, high = newcombe(right_first, n_first, right_second, n_second, phi, confidence)
    return pd.DataFrame(
        {
            "class": [*records.class_names, ALL],
            "n_first": n_first,
            "n_second": n_second,
            "first": first,
            "second": second,
            "difference": second - first,
            "low": low,
            "high": high,
            "p": p,
            "p_holm": np.append(pairing.holm(p[:-1]), p[-1]),
        }
    )


def newcombe(
    right_first: Array, n_first: Array, right_second: Array, n_second: Array, phi: Array, confidence: float = 0.95
) -> tuple[Array, Array]:
    """The interval for a₂ − a₁, element by element; NaN where a run has no examples."""
    first, second = intervals.ratio(right_first, n_first), intervals.ratio(right_second, n_second)
    low_first, high_first = intervals.bounds(right_first, n_first, confidence)
    low_second, high_second = intervals.bounds(right_second, n_second, confidence)
    down = _add(second - low_second, high_first - first, phi)
    up = _add(high_second - second, first - low_first, phi)
    return second - first - down, second - first + up


def _add(one: Array, two: Array, phi: Array) -> Array:
    """√(x² − 2φxy + y²), written as a sum of squares so that rounding cannot make it negative."""
    return np.asarray(np.sqrt((one - phi * two) ** 2 + (1 - phi**2) * two**2))


def _paired(records: Records, other: Records) -> tuple[Array, ...]:
    table = pairing.compute(records, other)
    n, only_first, only_second = (table[name].to_numpy() for name in ("n", "only_first", "only_second"))
    right_first, right_second = (
        np.rint(np.nan_to_num(table[name].to_numpy()) * n).astype(np.int64) for name in ("first", "second")
    )
    both, neither = right_first - only_first, n - right_first - only_second
    return right_first, n, right_second, n, _phi(both, only_first, only_second, neither), table["p"].to_numpy()


def _phi(both: Array, only_first: Array, only_second: Array, neither: Array) -> Array:
    """The correlation of two yes-no answers, moved towards 0 by n/2 in the numerator if it is positive."""
    a, b, c, d = (np.asarray(x, dtype=np.float64) for x in (both, only_first, only_second, neither))
    product = a * d - b * c
    shrunk = np.where(product > 0, np.maximum(product - (a + b + c + d) / 2, 0), product)
    spread = np.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    return np.asarray(np.divide(shrunk, spread, out=np.zeros_like(spread), where=spread > 0))


def _unpaired(records: Records, other: Records) -> tuple[Array, ...]:
    (right_first, n_first), (right_second, n_second) = (
        (np.append(part, part.sum()) for part in accuracy.counts(run)) for run in (records, other)
    )
    p = [
        stats.fisher_exact(np.array([[k, n - k], [j, m - j]])).pvalue if n and m else np.nan
        for k, n, j, m in zip(right_first, n_first, right_second, n_second, strict=True)
    ]
    return right_first, n_first, right_second, n_second, np.zeros(len(n_first)), np.array(p)
