"""Confusion matrix: how many examples of each class are predicted as each class (rows true, columns predicted).

N_ij = #{examples of class i predicted as j}, over all examples; the row rates N_ij / Σ_j N_ij have the class accuracies
on their diagonal, as in Figure 2 of Tian et al., "Analysis and Applications of Class-wise Robustness in Adversarial
Training", KDD 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.stats.intervals import Array, ratio

PAPERS = ()  # ours, or common knowledge
MOST_DENSE = 100  # classes up to which a summary holds the whole matrix


def compute(records: Records) -> Array:
    """The counts N, shape (C, C)."""
    records = records.single()
    require_classes(records, "label", "prediction")
    size = records.num_classes
    cell = records.label.astype(np.int64) * size + records.prediction
    return np.bincount(cell, minlength=size * size).reshape(size, size)


def rates(records: Records) -> Array:
    """The counts as shares of their row; the row of a class without examples is NaN."""
    counts = compute(records)
    return ratio(counts, counts.sum(axis=1, keepdims=True))


def stored(counts: Array) -> Any:
    """The counts as summary.json has them: rows of numbers, or above 100 classes only the cells that are not empty."""
    if len(counts) <= MOST_DENSE:
        return counts.tolist()
    true, predicted = np.nonzero(counts)
    cells = {"true": true, "predicted": predicted, "count": counts[true, predicted]}
    return {"classes": len(counts), **{name: values.tolist() for name, values in cells.items()}}


def from_stored(value: Any) -> Array:
    """The counts, shape (C, C), from either form in which summary.json has them."""
    if not isinstance(value, dict):
        return np.asarray(value, dtype=np.int64)
    counts = np.zeros((value["classes"], value["classes"]), dtype=np.int64)
    counts[value["true"], value["predicted"]] = value["count"]
    return counts


def require_classes(records: Records, *columns: str) -> None:
    """Raise if a column of class numbers holds one that has no class name."""
    for column in columns:
        values = records.frame[column].to_numpy()
        outside = values[(values < 0) | (values >= records.num_classes)]
        if outside.size:
            raise UserError(
                f"the {column} {outside[0]} is outside the class range 0…{records.num_classes - 1}. "
                "The records must name every class the data or the model knows."
            )
