"""Mean of the class accuracies (balanced accuracy).

ā = (1/C) Σ_c a_c over the classes that have examples. It equals the overall accuracy when all classes are of one size.
"""

from __future__ import annotations

from classwise.metrics import accuracy
from classwise.records import Records


def compute(records: Records) -> float:
    return float(accuracy.seen(records).mean())
