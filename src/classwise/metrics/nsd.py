"""Normalised standard deviation of the class accuracies: their standard deviation divided by their mean.

NSD = √((1/C) Σ_c (a_c − ā)²) / ā over the classes that have examples, as ABSLD reports it (Zhao et al., NeurIPS 2024);
dividing by C, as `cv` does, is our choice. Unlike CV it has no unit, so a model with a lower average does not look
fairer for that. NaN if every accuracy is 0.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats.intervals import Array

PAPERS = ("zhao2024",)
SHOWN = Shown(title="NSD", where=("gate",), digits=3, best="lowest")


def compute(records: Records) -> float:
    return of(accuracy.seen(records))


def of(accuracies: Array) -> float:
    """NSD of class accuracies, in any unit."""
    return float(accuracies.std() / accuracies.mean()) if accuracies.any() else float("nan")
