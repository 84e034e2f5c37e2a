"""Whether errors stay inside superclasses more often than expected by chance.

    inside = Σ_{i≠j, g(i)=g(j)} N_ij / Σ_{i≠j} N_ij          chance = Σ_i E_i (s_i − 1)/(C − 1) / Σ_i E_i

N the confusion counts, g(i) the superclass of class i and s_i its size, E_i = Σ_{j≠i} N_ij. `chance` is the share
inside if each class's errors fell evenly on all other classes: classes with many errors count for more, and so do large
superclasses. p is the share of random assignments of classes to superclasses of these sizes for which inside − chance
is at least as large, `p_less` of those for which it is at most as large. Tian et al. (KDD 2021, Section 4.2) find that
most errors stay inside; chance and test are ours.

Only classes with examples take part. The interval of `inside` is Wilson's and takes the errors as independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from classwise.core.records import Records
from classwise.metrics import misclassified
from classwise.metrics.superclass import superclass_of
from classwise.stats import intervals
from classwise.stats.comparisons import permuted
from classwise.stats.intervals import Array

PAPERS = ("tian2021",)

_PERMUTATIONS = 999


@dataclass(frozen=True, kw_only=True)
class Kinship:
    """The share of errors inside with its interval, the share by chance, the one-sided p-value of more than that, the
    number of errors, and the p-value of less than by chance."""

    inside: float
    low: float
    high: float
    chance: float
    p: float
    errors: int
    p_less: float


def compute(records: Records, confidence: float = 0.95, permutations: int = _PERMUTATIONS, seed: int = 0) -> Kinship:
    counts, group = _seen(records)
    return of(counts, group[:, None] == group[None, :], confidence, permutations, seed)


def of(
    counts: Array, related: Array, confidence: float = 0.95, permutations: int = _PERMUTATIONS, seed: int = 0
) -> Kinship:
    """The same of any relation between classes, also one that differs between the images of a class.

    counts: errors by true class (first axis) and predicted class (last), kinds of images between them if there are any.
    related: of the same shape, whether the predicted class is a relative of such an image; each class is its own.
    """
    total = int(counts.sum())
    if total == 0:
        return Kinship(inside=nan, low=nan, high=nan, chance=nan, p=nan, errors=0, p_less=nan)
    found, chance = _shares(counts, related)
    low, high = intervals.bounds(np.array(round(found * total)), np.array(total), confidence)
    generator = np.random.default_rng(seed)
    beyond = []
    for _ in range(permutations):
        order = generator.permutation(len(related))
        beyond.append(np.subtract(*_shares(counts, related[order][..., order])))
    p, p_less = permuted(np.array(beyond), found - chance)
    return Kinship(inside=found, low=float(low), high=float(high), chance=chance, p=p, errors=total, p_less=p_less)


def _seen(records: Records) -> tuple[Array, Array]:
    """The errors among the classes that have examples, and their superclasses; by class name, so that the numbers of
    the classes play no part in what is drawn."""
    group = superclass_of(records)
    counts = misclassified.compute(records)
    support = np.bincount(records.label, minlength=records.num_classes)
    seen = [c for c in np.argsort(records.class_names) if support[c]]
    return counts[np.ix_(seen, seen)], group[seen]


def _shares(counts: Array, related: Array) -> tuple[float, float]:
    """The share of errors inside, and what it would be if errors fell evenly."""
    errors, relatives = counts.sum(axis=-1), related.sum(axis=-1) - 1
    even = (errors * relatives).sum() / max(len(related) - 1, 1)
    return float((counts * related).sum() / errors.sum()), float(even / errors.sum())
