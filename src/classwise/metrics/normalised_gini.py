"""Gini coefficient of the class accuracies, scaled to reach 1: 0 if all are equal, 1 if only one class is ever right.

G* = C/(C − 1) · G with G of `gini`, whose largest value with C classes is 1 − 1/C; so models with different numbers of
classes can be compared (Deltas, Review of Economics and Statistics 2003). What GF-Score (arXiv 2604.12757) calls
normalised is G itself. NaN if every accuracy is 0 or only one class has examples.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import accuracy, gini
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ("deltas2003",)
SHOWN = Shown(title="norm. Gini", where=("gate",), digits=3, best="lowest")


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The scaled coefficient of class accuracies, in any unit."""
    classes = len(accuracies)
    return gini.of(accuracies) * classes / (classes - 1) if classes > 1 else float("nan")
