"""Maximum class-wise discrepancy: best minus worst class accuracy.

MCD = max_c a_c − min_c a_c (Tian et al., KDD 2021, Definition 4.2) over the classes that have examples, as a fraction;
the paper prints it in percent.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The discrepancy of class accuracies given as fractions."""
    return float(np.ptp(accuracies))


def estimate(records: Records, confidence: float = 0.95) -> tuple[float, float, float]:
    """The discrepancy with an interval, from simultaneous intervals of the class accuracies: the true one is at most
    the largest upper bound minus the smallest lower one."""
    found = accuracy.compute(records, confidence=confidence, simultaneous=True)
    best, worst, seen = found.best, found.worst, found.support > 0
    least = max(0.0, float(found.low[best] - found.high[worst]))
    value = float(found.values[best] - found.values[worst])
    return value, least, float(max(found.high[seen]) - min(found.low[seen]))


SHOWN = Shown(
    title="MCD (%)",
    unit="points",
    caption="points from best to worst class",
    names=("gap", "mcd"),
    estimate=estimate,
    best="lowest",
)
