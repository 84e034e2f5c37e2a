"""Flips inside and across superclasses: the share of errors that stay among related classes.

inside = Σ_{i≠j, g(i)=g(j)} N_ij / Σ_{i≠j} N_ij, N the confusion counts and g(i) the superclass of class i; across is
the rest. Tian et al. (KDD 2021, Section 4.2) find most flips inside Transportation and inside Animals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from classwise.core.errors import UserError
from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import accuracy, misclassified
from classwise.stats import intervals
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)


@dataclass(frozen=True)
class Flips:
    """Shares of all errors (NaN if there are none), and the inside share of each class's errors as `by_class`.

    The support of `by_class` counts errors, not examples.
    """

    errors: int
    inside: float
    across: float
    by_class: PerClass


def compute(records: Records, confidence: float = 0.95) -> Flips:
    group = superclass_of(records)
    counts = misclassified.compute(records)
    errors = counts.sum(axis=1)
    inside = np.where(group[:, None] == group[None, :], counts, 0).sum(axis=1)
    share = float(intervals.ratio(inside.sum(), errors.sum()))
    return Flips(int(errors.sum()), share, 1 - share, accuracy.of_counts(records, inside, errors, confidence))


def superclass_of(records: Records) -> Array:
    """The number of each class's superclass, in the order the superclasses are given."""
    groups = records.meta.superclasses
    if not groups:
        raise UserError("these records name no superclasses. Audit a data set that has them, such as cifar10 or stl10.")
    found: dict[str, int] = {}
    for number, (superclass, members) in enumerate(groups.items()):
        for name in members:
            if name not in records.class_names:
                raise UserError(f"superclass {superclass!r} lists {name!r}, which is not a class of these records.")
            if name in found:
                raise UserError(f"class {name!r} is listed in two superclasses; each class must be in one.")
            found[name] = number
    for name in records.class_names:
        if name not in found:
            raise UserError(f"class {name!r} is in no superclass; each class must be in one of {', '.join(groups)}.")
    return np.array([found[name] for name in records.class_names])
