"""Split of the classes into robust and vulnerable ones.

A class is robust if its accuracy under attack is higher than the overall accuracy, vulnerable if it is lower (Tian et
al., KDD 2021, Definition 3.3). A class exactly at the overall accuracy, or without examples, is neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)


@dataclass(frozen=True)
class Split:
    """The names of the robust and of the vulnerable classes, in class order."""

    robust: tuple[str, ...]
    vulnerable: tuple[str, ...]


def compute(records: Records) -> Split:
    correct, support = accuracy.counts(records)
    # Cross-multiplied whole numbers, so that a class exactly at the overall accuracy is not moved by rounding.
    side = np.sign(correct * support.sum() - correct.sum() * support)
    return Split(_names(records, side > 0), _names(records, side < 0))


def _names(records: Records, chosen: Array) -> tuple[str, ...]:
    return tuple(records.class_names[number] for number in np.flatnonzero(chosen))
