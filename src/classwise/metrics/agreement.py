"""Agreement of two runs on the order of the classes, from most to least accurate.

Spearman's ρ and Kendall's τ_b (which allows for ties) between the class accuracies of two runs, with two-sided p-values
of "no association"; over the classes, matched by name, that have examples in both. NaN if one run has the same accuracy
in every class: it orders nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
import scipy  # its stats are loaded at their first use

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy

PAPERS = ()  # ours, or common knowledge


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Both coefficients in [−1, 1] with their p-values, and the number of classes compared."""

    spearman: float
    spearman_p: float
    kendall: float
    kendall_p: float
    classes: int


def compute(records: Records, other: Records) -> Agreement:
    first, second = _seen(records), _seen(other)
    shared = [name for name in first if name in second]
    if len(shared) < 2:
        raise UserError(
            f"an order needs at least two classes with examples in both runs; these share {len(shared)}. "
            f"First run: {', '.join(first)}. Second run: {', '.join(second)}."
        )
    x, y = (np.array([run[name] for name in shared]) for run in (first, second))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Agreement(spearman=nan, spearman_p=nan, kendall=nan, kendall_p=nan, classes=len(shared))
    spearman, kendall = scipy.stats.spearmanr(x, y), scipy.stats.kendalltau(x, y)
    return Agreement(
        spearman=float(spearman.statistic),
        spearman_p=float(spearman.pvalue),
        kendall=float(kendall.statistic),
        kendall_p=float(kendall.pvalue),
        classes=len(shared),
    )


def _seen(records: Records) -> dict[str, float]:
    values = accuracy.compute(records)
    return {
        name: float(value)
        for name, value, n in zip(values.class_names, values.values, values.support, strict=True)
        if n
    }
