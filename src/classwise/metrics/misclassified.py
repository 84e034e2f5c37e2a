"""Misclassified matrix: to which class the wrongly predicted examples of each class go.

M_ij = N_ij for i ≠ j and 0 on the diagonal, N the confusion counts (Tian et al., KDD 2021, Figure 4a). The rates
M_ij / Σ_j M_ij are the distribution of a class's predictions given that they are wrong, so classes of very different
robustness can be compared.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.stats.intervals import Array, ratio

PAPERS = ("tian2021",)


def compute(records: Records) -> Array:
    """The counts M, shape (C, C)."""
    counts = confusion.compute(records)
    np.fill_diagonal(counts, 0)
    return counts


def rates(records: Records) -> Array:
    """The counts as shares of each class's errors; the row of a class without errors is NaN."""
    errors = compute(records)
    return ratio(errors, errors.sum(axis=1, keepdims=True))
