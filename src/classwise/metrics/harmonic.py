"""Harmonic mean of the class accuracies: a mean that weak classes dominate.

H = C / Σ_c (1/a_c) over the C classes that have examples; 0 if one of them is never right. It lies between the worst
accuracy and the mean, and is at most C times the worst. It rises with every accuracy, so its interval is
[H(low), H(high)] at the ends of simultaneous (Šidák) Wilson intervals of the classes; it is conservative.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ()  # ours, or common knowledge


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The harmonic mean of class accuracies, in any unit."""
    return float(len(accuracies) / np.sum(1 / accuracies)) if accuracies.all() else 0.0


def estimate(records: Records, confidence: float = 0.95) -> tuple[float, float, float]:
    """The mean with its interval."""
    found = accuracy.compute(records, confidence=confidence, simultaneous=True)
    value, low, high = (of(part[found.support > 0]) for part in (found.values, found.low, found.high))
    return value, low, high


SHOWN = Shown(title="harmonic", where=("gate",), unit="share", estimate=estimate)
