"""Confound class: the class that each class is most often misclassified as.

For class i it is argmax_{j≠i} N_ij, N the confusion counts, the first class if several tie (the confound class of an
example, Tian et al., KDD 2021, Definition 3.2, taken by majority over the class), with its count and its share of the
class's errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.records import Records
from classwise.metrics import misclassified
from classwise.stats import intervals
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)


@dataclass(frozen=True)
class Confound:
    """Per class the number of its confound (−1 if it has no error), how often, and the share of its errors."""

    number: Array
    count: Array
    share: Array
    class_names: tuple[str, ...]

    @property
    def names(self) -> list[str | None]:
        """The confound's name for each class, None if there is none."""
        return [None if number < 0 else self.class_names[number] for number in self.number]

    def to_frame(self) -> pd.DataFrame:
        names = pd.Series(self.names, dtype=object)
        return pd.DataFrame(
            {"class": self.class_names, "confused_with": names, "count": self.count, "share": self.share}
        )


def compute(records: Records) -> Confound:
    errors = misclassified.compute(records)
    count = errors.max(axis=1)
    number = np.where(count > 0, errors.argmax(axis=1), -1)
    return Confound(number, count, intervals.ratio(count, errors.sum(axis=1)), records.class_names)
