"""Maximum class-wise discrepancy: best minus worst class accuracy.

MCD = max_c a_c − min_c a_c (Tian et al., KDD 2021, Definition 4.2) over the classes that have examples, as a fraction;
the paper prints it in percent.
"""

from __future__ import annotations

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.stats.intervals import Array


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The discrepancy of class accuracies given as fractions."""
    return float(np.ptp(accuracies))
