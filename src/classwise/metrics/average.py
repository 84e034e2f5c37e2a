"""Mean of the class accuracies (balanced accuracy).

ā = (1/C) Σ_c a_c over the classes that have examples. It equals the overall accuracy when all classes are of one size.
Its interval is that of a sum of independent proportions, from their Wilson intervals [l_c, u_c] (MOVER; Zou & Donner,
Statistics in Medicine 2008),

    ā − (1/C) √Σ_c (a_c − l_c)²   to   ā + (1/C) √Σ_c (u_c − a_c)².
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array, Estimate

PAPERS = ("zou2008",)
SHOWN = Shown(title="average", where=("gate",), unit="share")


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The mean of class accuracies, in any unit."""
    return float(accuracies.mean())


def estimate(records: Records, confidence: float = 0.95) -> Estimate:
    """The mean with its interval."""
    found = accuracy.compute(records, confidence=confidence)
    seen = found.support > 0
    values, low, high = (part[seen] for part in (found.values, found.low, found.high))
    below, above = (float(np.linalg.norm(values - end)) / len(values) for end in (low, high))
    mean = float(values.mean())
    return Estimate(mean, mean - below, mean + above, int(found.support.sum()))
