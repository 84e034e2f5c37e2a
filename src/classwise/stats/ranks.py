"""Ranks of models by their worst class, with intervals: which model may be first, and which surely is not.

Model i is better than model j if θ_i > θ_j, θ = min_c p_c being the lowest true class accuracy. The minimum is not
smooth where classes are close, and there a bootstrap of it is not valid; this test is, for any number of images.

    H: θ_i ≤ θ_j  =  ∪_c ∩_d { p_ic ≤ p_jd }              some class c of i is no better than any class d of j
    p_i>j = max_c min(1, m · min_d p(c, d))               every class c must be shown to exceed one of j's m classes

The outer maximum needs no correction (intersection-union, Berger 1982), the inner minimum is Bonferroni over the m
classes. p(c, d) is one-sided and exact: d = c, where both models saw the same images, by McNemar's test of the pairs;
otherwise, where no image is shared, by Fisher's. Of those only the class d that j is seen to be worst at is tried,
which can only make p larger.

All n (n − 1) hypotheses are corrected by Holm (1979). With probability at least the confidence no rejection is false,
and then the interval of every model holds its true rank, all at once (Mogstad et al., Review of Economic Studies 2024):

    1 + number of models shown to be better  ≤  rank  ≤  n − number of models shown to be worse
"""

from __future__ import annotations

import numpy as np
import scipy  # its stats are loaded at their first use
from scipy import special

from classwise.stats.comparisons import holm
from classwise.stats.intervals import Array


def p_better(one: Array, other: Array, label: Array) -> float:
    """p of "the first model's worst class is the more accurate one".

    one, other: whether each model is right on each image. label: the class of each image.
    """
    classes = np.unique(label, return_inverse=True)[1].reshape(-1)
    n, mine, theirs, only_mine, only_theirs = (
        np.bincount(classes[chosen], minlength=classes.max() + 1)
        for chosen in (np.ones_like(one), one, other, one & ~other, other & ~one)
    )
    paired = special.bdtr(
        only_theirs.astype(float), only_mine + only_theirs, 0.5
    )  # P(at most so few pairs are the other's)
    lowest = int(np.argmin(theirs / n))
    unpaired = np.asarray(scipy.stats.hypergeom.sf(mine - 1, n + n[lowest], mine + theirs[lowest], n))
    unpaired[lowest] = 1.0  # the same images
    return float(np.minimum(1.0, len(n) * np.minimum(paired, unpaired)).max())


def compare_all(correct: Array, label: Array) -> Array:
    """p of each model (rows) having a more accurate worst class than each other (columns), Holm over all of them.

    correct: models by images. The diagonal is NaN.
    """
    count = len(correct)
    p = np.full((count, count), np.nan)
    for i in range(count):
        for j in range(count):
            if i != j:
                p[i, j] = p_better(correct[i], correct[j], label)
    return holm(p.reshape(-1)).reshape(count, count)


def intervals(p: Array, alpha: float = 0.05) -> tuple[Array, Array]:
    """The first and the last rank that each model may have, from the corrected p of `compare_all`."""
    beats = np.nan_to_num(p, nan=1.0) < alpha
    return 1 + beats.sum(axis=0), len(p) - beats.sum(axis=1)


def competition(values: Array) -> Array:
    """1 for the highest value; those that tie share the better rank."""
    return scipy.stats.rankdata(-np.asarray(values, dtype=np.float64), method="min").astype(np.int64)
