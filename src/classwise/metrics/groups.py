"""Groups of classes that are confused with each other, and how well they agree with the known superclasses.

The likeness of two classes is how often they flip into each other, s_ij = (r_ij + r_ji)/2 with r the row rates of the
confusion matrix. Classes are joined by average linkage (UPGMA, Sokal & Michener 1958) on the distance 1 − s_ij, and the
tree is cut where the modularity Q = Σ_g (e_gg − a_g²) is largest (Newman & Girvan 2004), e_gh the share of all s that
lies between the groups g and h, and a_g = Σ_h e_gh: where groups contain more of the flips than expected by chance.
Among hundreds of classes modularity joins small groups (Fortunato & Barthélemy 2007); `count` asks for more of them.

Against superclasses: the adjusted Rand index (Hubert & Arabie 1985), 1 if they are the same, 0 on average by chance;
purity, the share of classes that are in the majority superclass of their group (1 for groups of one: read it with the
index); and a permutation p-value, the share of random assignments to groups of these sizes with an index as high.

Tian et al. (KDD 2021, Section 4.2) observe such groups in the matrix; finding them automatically is ours. Classes
without examples are in no group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import confusion, superclass
from classwise.stats import intervals
from classwise.stats.intervals import Array

PAPERS = ("newman2004",)

_PERMUTATIONS = 9999
_AT_ONCE = 1_000_000  # classes shuffled in one piece, to bound the memory
_WELL_ORDERED = 300  # classes up to which the leaves of the tree are put into the best order (cubic time)


@dataclass(frozen=True)
class Superclasses:
    """Agreement of the groups with the known superclasses: adjusted Rand index with its p-value, and purity."""

    rand: float
    p: float
    purity: float


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups, the weakest first by the mean accuracy of their classes.

    number: of each class's group, from 0; −1 without examples. order: all classes as the tree lists them, like beside
    like, those without examples last. tree: SciPy's linkage matrix over the classes that have examples. modularity is
    NaN if nothing is confused. inside: the share of each class's errors that stay in its group.
    """

    members: tuple[tuple[str, ...], ...]
    number: Array
    order: tuple[str, ...]
    tree: Array
    modularity: float
    inside: Array
    superclasses: Superclasses | None
    class_names: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"class": self.class_names, "group": self.number, "inside": self.inside})


def compute(records: Records, count: int | None = None) -> Groups:
    """The groups of the largest modularity, or exactly `count` of them."""
    rates = confusion.rates(records)
    seen = np.flatnonzero(np.isfinite(rates).all(axis=1))
    if count is not None and not 1 <= count <= len(seen):
        raise UserError(f"count must lie between 1 and {len(seen)}, the number of classes with examples; got {count}.")
    flips = rates[np.ix_(seen, seen)]
    accuracy = flips.diagonal().copy()
    np.fill_diagonal(flips, 0)
    likeness = (flips + flips.T) / 2
    tree = _tree(likeness)
    modularity = _modularity(likeness, tree)
    count = count or len(seen) - int(np.argmax(modularity))
    names = [records.class_names[c] for c in seen]
    groups = _weakest_first(_cut(tree, len(seen), count), accuracy, names)
    number = np.full(records.num_classes, -1)
    for place, group in enumerate(groups):
        number[seen[group]] = place
    known = superclass.superclass_of(records)[seen] if records.meta.superclasses else None
    leaves = hierarchy.leaves_list(tree) if len(tree) else np.arange(len(seen))
    absent = [name for name, group in zip(records.class_names, number, strict=True) if group < 0]
    return Groups(
        members=tuple(tuple(names[c] for c in group) for group in groups),
        number=number,
        order=(*(names[c] for c in leaves), *absent),
        tree=tree,
        modularity=float(modularity[len(seen) - count]),
        inside=_inside(confusion.compute(records), number),
        superclasses=None if known is None else compare(number[seen], known),
        class_names=records.class_names,
    )


def compare(found: Array, known: Array, permutations: int = _PERMUTATIONS, seed: int = 0) -> Superclasses:
    """Two groupings of the same classes, each given as one number per class.

    With the group sizes held, the index grows with the number of pairs that are together in both, so the permutations
    count those. They start from the sorted sizes: the p-value does not depend on the order of the classes.
    """
    from sklearn.metrics import adjusted_rand_score  # here, because it takes longer to import than to use
    from sklearn.metrics.cluster import contingency_matrix

    table, rand = contingency_matrix(found, known), adjusted_rand_score(known, found)
    together = int((table * (table - 1) // 2).sum())  # pairs that are in one group of both
    as_high = _count_as_high(np.sort(table.sum(axis=1)), np.sort(table.sum(axis=0)), together, permutations, seed)
    purity = table.max(axis=1).sum() / len(found)
    return Superclasses(float(rand), (1 + as_high) / (1 + permutations), float(purity))


def _tree(likeness: Array) -> Array:
    """The linkage matrix; empty for a single class."""
    size = len(likeness)
    if size < 2:
        return np.empty((0, 4))
    distance = squareform(1 - likeness - np.eye(size), checks=False)
    return np.asarray(hierarchy.linkage(distance, "average", optimal_ordering=size <= _WELL_ORDERED))


def _modularity(likeness: Array, tree: Array) -> Array:
    """Q after 0, 1, 2, … joins of the tree; NaN throughout if nothing is confused."""
    size, total = len(likeness), likeness.sum()
    if total == 0:
        return np.full(size, np.nan)
    between = likeness / total  # e_gh; the row of a joined group is that of its first
    share = between.sum(axis=1)
    row = list(range(size))
    values = [-float((share**2).sum())]
    for first, second in tree[:, :2].astype(int):
        kept, gone = row[first], row[second]
        values.append(values[-1] + float(2 * (between[kept, gone] - share[kept] * share[gone])))
        between[kept] += between[gone]
        between[:, kept] += between[:, gone]
        share[kept] += share[gone]
        row.append(kept)
    return np.array(values)


def _cut(tree: Array, size: int, count: int) -> list[list[int]]:
    """The groups left after the first joins of the tree."""
    number = hierarchy.cut_tree(tree, [count]).reshape(-1) if len(tree) else np.zeros(size, dtype=np.int64)
    return [np.flatnonzero(number == group).tolist() for group in range(count)]


def _weakest_first(groups: list[list[int]], accuracy: Array, names: list[str]) -> list[list[int]]:
    """By the mean accuracy of their classes, then by name, so that the order of the classes plays no part."""
    return sorted(groups, key=lambda g: (round(float(accuracy[g].mean()), 12), min(names[c] for c in g)))


def _inside(counts: Array, number: Array) -> Array:
    """The share of each class's errors that stay in its group; NaN without errors."""
    errors = counts * (1 - np.eye(len(counts), dtype=np.int64))
    same = (number[:, None] == number[None, :]) & (number >= 0)
    return intervals.ratio((errors * same).sum(axis=1), errors.sum(axis=1))


def _count_as_high(mine: Array, theirs: Array, together: int, permutations: int, seed: int) -> int:
    """In how many random assignments at least so many pairs are together in both groupings."""
    generator = np.random.default_rng(seed)
    group, label = (np.repeat(np.arange(len(sizes)), sizes) for sizes in (mine, theirs))
    place, at_once = np.arange(len(label)), max(1, _AT_ONCE // len(label))
    as_high = 0
    for begin in range(0, permutations, at_once):
        rounds = min(at_once, permutations - begin)
        cell = np.sort(group * len(theirs) + generator.permuted(np.tile(label, (rounds, 1)), axis=1), axis=1)
        new = np.diff(cell, axis=1, prepend=-1) > 0
        # The k-th of a run of equal cells makes k − 1 pairs with those before it.
        before = place - np.maximum.accumulate(np.where(new, place, 0), axis=1)
        as_high += int((before.sum(axis=1) >= together).sum())
    return as_high
