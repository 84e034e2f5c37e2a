"""Whether classes are confused with each other more mutually than expected by chance.

The symmetry s of the confusion (`metrics.symmetry`) has no natural zero: of errors spread evenly most are answered, of
a few large confusions hardly any. It is compared with the symmetry expected if each class were misclassified without
regard to which classes are misclassified as it: the mean over random permutations of the errors in each row, each class
keeping its rates. p is the share of permutations at least as symmetric as the observed matrix, `p_less` of those at
most as symmetric; ties count for both, so that a few errors whose permutations are all equal are evidence for neither.
Tian et al. (KDD 2021, Section 4.2) observe the symmetry in the matrix; the test is ours. NaN if nothing is confused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from classwise.core.records import Records
from classwise.metrics import confusion, symmetry
from classwise.stats.comparisons import permuted
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)

_PERMUTATIONS = 999


@dataclass(frozen=True)
class Reciprocity:
    """The symmetry, what chance gives on average, and the one-sided p-values of more and of less than by chance."""

    symmetry: float
    chance: float
    p: float
    p_less: float


def compute(records: Records, permutations: int = _PERMUTATIONS, seed: int = 0) -> Reciprocity:
    seen = symmetry.compute(records)
    if np.isnan(seen):
        return Reciprocity(seen, *[float("nan")] * 3)
    others = _others(records)
    generator = np.random.default_rng(seed)
    found = np.array([_symmetry(generator.permuted(others, axis=1)) for _ in range(permutations)])
    return Reciprocity(seen, float(found.mean()), *permuted(found, seen))


def _others(records: Records) -> Array:
    """The rates at which each class is misclassified as each other one, (C, C − 1), of classes with examples.

    By class name: what is drawn must not depend on how the classes are numbered.
    """
    rates = confusion.rates(records)
    seen = [c for c in np.argsort(records.class_names) if np.isfinite(rates[c]).all()]
    return np.asarray(rates[np.ix_(seen, seen)][~np.eye(len(seen), dtype=bool)].reshape(len(seen), -1))


def _symmetry(others: Array) -> float:
    flips = np.zeros((len(others), len(others)))
    flips[~np.eye(len(others), dtype=bool)] = others.reshape(-1)
    return float(np.minimum(flips, flips.T).sum() / flips.sum())
