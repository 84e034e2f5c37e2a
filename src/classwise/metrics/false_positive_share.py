"""Class false-positive share: which classes the wrong predictions go to, with an interval.

CFPS_k = #{misclassified examples predicted as k} / #{misclassified examples} (FAIR-TAT: Medi, Jung and Keuper, WACV
2025). The shares of all classes sum to 1. Of records in which nothing is misclassified every share is NaN. A class
without examples has a share too: predictions may go to it.
"""

from __future__ import annotations

import numpy as np

from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import accuracy, misclassified

PAPERS = ("medi2025fairtat",)


def compute(records: Records, confidence: float = 0.95) -> PerClass:
    """Each class's share with its Wilson interval; the support is the number of all misclassified examples."""
    predicted = misclassified.compute(records).sum(axis=0)
    return accuracy.of_counts(records, predicted, np.full_like(predicted, predicted.sum()), confidence)
