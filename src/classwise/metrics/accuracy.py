"""Accuracy of each class, with an interval.

a_c = #{examples of class c predicted as c} / #{examples of class c}. Under an attack this is the class's robustness, on
clean images its natural accuracy.
"""

from __future__ import annotations

import numpy as np

from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.stats import intervals
from classwise.stats.intervals import Array, Interval

PAPERS = ("wilson1927",)


def compute(
    records: Records, interval: Interval = "wilson", confidence: float = 0.95, simultaneous: bool = False
) -> PerClass:
    """The accuracy of each class.

    simultaneous: widen the intervals (Šidák over the classes that have examples) so that they are
    simultaneous at the given confidence; otherwise each holds by itself.
    """
    correct, support = counts(records)
    if simultaneous:
        confidence = intervals.sidak(confidence, int(np.count_nonzero(support)))
    return of_counts(records, correct, support, confidence, interval)


def of_counts(
    records: Records, correct: Array, support: Array, confidence: float, interval: Interval = "wilson"
) -> PerClass:
    """A share of each class of the records, from its counts."""
    low, high = intervals.bounds(correct, support, confidence, interval)
    values = intervals.ratio(correct, support)
    return PerClass(values=values, support=support, low=low, high=high, class_names=records.class_names)


def counts(records: Records) -> tuple[Array, Array]:
    """The number of correctly predicted examples and of all examples, per class."""
    records = records.single()
    confusion.require_classes(records, "label")
    size = records.num_classes
    correct = np.bincount(records.label[records.correct], minlength=size)
    return correct, np.bincount(records.label, minlength=size)


def seen(records: Records) -> Array:
    """The accuracies of the classes that have examples, in class order."""
    correct, support = counts(records)
    return np.asarray(correct[support > 0] / support[support > 0])
