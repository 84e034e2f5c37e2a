"""Gini coefficient of the class accuracies: 0 if all are equal, near 1 if one class has everything.

G = Σ_i Σ_j |a_i − a_j| / (2 C² ā) over the C classes that have examples (Gini 1912). GF-Score (Shah, Visavadiya and
Padala 2026, arXiv 2604.12757) calls it the normalised robustness Gini coefficient (NRGC) and takes it of certified
scores of the classes; here it is that of their accuracies. It is at most 1 − 1/C; `normalised_gini` divides by that.
NaN if every accuracy is 0, where GF-Score's code has 0.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ("gini1912", "shah2026")
SHOWN = Shown(title="Gini", where=("gate",), digits=3, best="lowest")


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The coefficient of class accuracies, in any unit."""
    if not accuracies.any():
        return float("nan")
    return float(np.abs(accuracies[:, None] - accuracies).mean() / (2 * accuracies.mean()))
