"""Is one class the least accurate, and in every setting? By exact tests of each two classes.

Two classes share no image, so p_ij, the one-sided p-value of "class i is less accurate than class j", is that of
Fisher's exact test (1934). Class c is the least accurate one if every p_cj is small: no correction, since all must be.
It is not if some p_jc is small, corrected by Bonferroni over all comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its stats are loaded at their first use

from classwise.stats.intervals import Array

#: Correct answers and images of each class.
Counts = tuple[Array, Array]

TEST = "Fisher's exact test against every other class"


def below(counts: Counts) -> Array:
    """p_ij of every two classes; NaN where one has no images, and on the diagonal."""
    right, n = (np.asarray(part, dtype=np.int64) for part in counts)
    i, j = np.meshgrid(np.arange(len(n)), np.arange(len(n)), indexing="ij")
    p = np.asarray(scipy.stats.hypergeom.cdf(right[i], n[i] + n[j], right[i] + right[j], n[i]), dtype=np.float64)
    p[(n[i] == 0) | (n[j] == 0) | (i == j)] = np.nan
    return p


def always_least(settings: Sequence[Counts]) -> tuple[int, float, float]:
    """The class most likely to be the least accurate in every setting; p that it is, and p that none is."""
    found = np.stack([below(counts) for counts in settings])
    seen = np.flatnonzero(np.isfinite(found).any(axis=(0, 2)))
    least = np.nanmax(found[:, seen], axis=(0, 2))
    comparisons = len(found) * max(len(seen) - 1, 1)
    another = np.minimum(np.nanmin(found[:, :, seen], axis=(0, 1)) * comparisons, 1.0)
    best = int(least.argmin())
    return int(seen[best]), float(least[best]), float(another.max())


def share_least(settings: Sequence[Counts], chosen: int, level: float) -> tuple[float, float]:
    """In what share of the settings the class is the least accurate one: an interval at 1 − level."""
    found = np.stack([below(counts) for counts in settings])
    each = level / (2 * len(found))
    certain = np.nanmax(found[:, chosen], axis=1) <= each
    not_so = np.nanmin(found[:, :, chosen], axis=1) * max(found.shape[1] - 1, 1) <= each
    return float(certain.mean()), float(1 - not_so.mean())
