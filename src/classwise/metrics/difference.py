"""Difference of two runs, class by class and over all: with an interval, and a test of whether it is chance.

d = a₂ − a₁, the accuracy of the second run minus that of the first, with Newcombe's interval (`stats.comparisons`).

paired     runs of the same examples: φ is the correlation of their answers, p the exact McNemar test of
           `metrics.paired`.
unpaired   runs of different examples: φ = 0, p the two-sided exact test of Fisher.

`p_holm` is corrected by Holm (1979) over the classes that have examples in both runs; the row over all examples asks
one question of its own. Interval and test are different constructions and may disagree by a hair at the border.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics import paired as pairing
from classwise.stats import intervals
from classwise.stats.comparisons import correlation_of_answers, fisher, holm, newcombe
from classwise.stats.intervals import Array

PAPERS = ("newcombe1998", "mcnemar1947")
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
            "p_holm": np.append(holm(p[:-1]), p[-1]),
        }
    )


def _paired(records: Records, other: Records) -> tuple[Array, ...]:
    table = pairing.compute(records, other)
    n, only_first, only_second = (table[name].to_numpy() for name in ("n", "only_first", "only_second"))
    right_first, right_second = (
        np.rint(np.nan_to_num(table[name].to_numpy()) * n).astype(np.int64) for name in ("first", "second")
    )
    both, neither = right_first - only_first, n - right_first - only_second
    phi = correlation_of_answers(both, only_first, only_second, neither)
    return right_first, n, right_second, n, phi, table["p"].to_numpy()


def _unpaired(records: Records, other: Records) -> tuple[Array, ...]:
    (right_first, n_first), (right_second, n_second) = (
        (np.append(part, part.sum()) for part in accuracy.counts(run)) for run in (records, other)
    )
    p = fisher(right_first, n_first, right_second, n_second)
    return right_first, n_first, right_second, n_second, np.zeros(len(n_first)), p
