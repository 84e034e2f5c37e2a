"""Class-wise variance of the accuracy, in percent².

CV = (1/C) Σ_c (a_c − ā)², a_c in percent (Tian et al., KDD 2021, Definition 4.1): the population variance, over the
classes that have examples. Divide by 10⁴ for the unit of Li & Liu, AAAI 2023.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)
SHOWN = Shown(title="CV (%²)", where=("terminal", "gate"), best="lowest")


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """The variance of class accuracies given as fractions."""
    return float((100 * accuracies).var())
