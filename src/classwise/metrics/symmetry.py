"""Symmetry of the confusion: the share of flips that are matched by flips the other way, in [0, 1].

    s = Σ_{i≠j} min(r_ij, r_ji) / Σ_{i≠j} r_ij        r the row rates of the confusion matrix

1 if any two classes are confused equally often in both directions, 0 if every confusion goes one way only. Tian et al.
(KDD 2021, Section 4.2) observe that the matrices look symmetric; the number is ours. Rates rather than counts, so that
class sizes do not matter; pairs with a class that has no examples are left out. NaN if nothing is confused.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import confusion

PAPERS = ("tian2021",)


def compute(records: Records) -> float:
    rates = confusion.rates(records)
    seen = np.flatnonzero(np.isfinite(rates).all(axis=1))
    flips = rates[np.ix_(seen, seen)]
    np.fill_diagonal(flips, 0)
    total = flips.sum()
    return float(np.minimum(flips, flips.T).sum() / total) if total > 0 else float("nan")
