"""The class of lowest accuracy, an interval for the lowest true class accuracy, and the classes that may be the worst.

**Interval.** It is for θ = min_c p_c, p_c being the true accuracies. The observed minimum lies below θ on average, the
more so the more classes are near the bottom, so the interval of the class that happens to come out lowest is not one
for θ. With lower bounds L_c and upper bounds U_c of single classes,

    min_c L_c ≤ θ fails only if L_w > p_w for a truly worst class w: one event, so no correction is needed;
    θ ≤ min_c U_c fails if U_c < θ ≤ p_c for any class c: the m upper bounds must be simultaneous.

So low = min_c L_c at the one-sided level α/2, and high = min_c U_c at the one-sided level 1 − (1 − α/2)^(1/m) (Šidák
over the m classes that have examples). Together they miss θ with probability at most α, whatever the p_c. The exact
interval is the default because the guarantee rests on the bounds holding; with Wilson it is approximate.

**Classes that may be the worst.** A confidence set (subset selection, Gupta 1965): class c is ruled out if it is
significantly more accurate than some other class, by Fisher's exact one-sided test (1934) at the level α/(m − 1). A
truly worst class w is ruled out only if one of m − 1 tests rejects although p_w ≤ p_j, so with probability at most α
(Bonferroni), whatever the p_c and however few the examples. Each class is tested against the one it exceeds most
clearly (largest pooled z), which can only keep more classes. The classes that tie for the lowest accuracy are always in
the set. A set of one class says: this class is the worst, at confidence 1 − α.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its stats are loaded at their first use

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats import intervals
from classwise.stats.intervals import Array, Interval

PAPERS = ()  # ours, or common knowledge
SHOWN = Shown(title="worst", where=("gate",), unit="share")

FEWEST = 10  # examples of a class before it may be called the worst
_UNREALISTIC = 1_000_000  # examples per class


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The class seen to be worst (the first, if several tie), and the interval for the lowest true accuracy.

    tied: every class of that accuracy, in class order. possible: the classes that may truly be the worst, from the
    lowest accuracy on; those that tie come first.
    """

    number: int
    name: str
    value: float
    low: float
    high: float
    tied: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Who it is, for a table."""
        return label(self.tied)


def compute(records: Records, interval: Interval = "exact", confidence: float = 0.95) -> Worst:
    correct, support = accuracy.counts(records)
    values = intervals.ratio(correct, support)
    number = int(np.nanargmin(values))
    low, high = bounds(correct[support > 0], support[support > 0], confidence, interval)
    chosen = np.flatnonzero(may_be_worst(correct, support, confidence))
    possible = chosen[np.argsort(values[chosen], kind="stable")]
    tied = np.flatnonzero(values == values[number])
    names = records.class_names
    return Worst(
        number=number,
        name=names[number],
        value=float(values[number]),
        low=float(low),
        high=float(high),
        tied=tuple(names[c] for c in tied),
        possible=tuple(names[c] for c in possible),
    )


def of(accuracies: Array) -> float:
    """The lowest of class accuracies, in any unit."""
    return float(accuracies.min())


def label(tied: Sequence[str]) -> str:
    """The classes that tie for the worst, for a table: one or two names, or how many they are."""
    return ", ".join(tied) if len(tied) <= 2 else f"{len(tied):,} classes tie"


def bounds(
    correct: Array, support: Array, confidence: float = 0.95, interval: Interval = "exact"
) -> tuple[Array, Array]:
    """The interval for the lowest true accuracy; the classes, all with examples, are the last axis."""
    m = np.shape(correct)[-1]
    low, _ = intervals.bounds(correct, support, confidence, interval)
    tail = 1 - (1 - (1 - confidence) / 2) ** (1 / m)
    _, high = intervals.bounds(correct, support, 1 - 2 * tail, interval)
    return low.min(axis=-1), high.min(axis=-1)


@dataclass(frozen=True)
class Separation:
    """The two classes of lowest accuracy, and how many examples of each it would take to rule out the second.

    Each class as name, accuracy and examples; needed is None if no realistic number is known to do it.
    """

    first: tuple[str, float, int]
    second: tuple[str, float, int]
    needed: int | None


def separation(records: Records, confidence: float = 0.95, power: float = intervals.POWER) -> Separation:
    """Examples for the test of two classes to have the given power, if the accuracies are what they seem.

    By the formula of `intervals.images_needed`, at the one-sided level of that test; more than there are, in any case.
    """
    correct, support = accuracy.counts(records)
    values = intervals.ratio(correct, support)
    seen = np.flatnonzero(support > 0)
    first, second = (
        (records.class_names[c], float(values[c]), int(support[c]))
        for c in seen[np.argsort(values[seen], kind="stable")][:2]
    )
    two_sided = 1 - 2 * level_of_one(confidence, len(seen))
    needed = max(intervals.images_needed(first[1], second[1], two_sided, power), min(first[2], second[2]) + 1)
    return Separation(first, second, int(needed) if needed <= _UNREALISTIC else None)


def level_of_one(confidence: float, m: int) -> float:
    """The one-sided level at which one of m classes is tested against another."""
    return (1 - intervals.check_confidence(confidence)) / max(m - 1, 1)


def may_be_worst(correct: Array, support: Array, confidence: float = 0.95) -> Array:
    """Whether each class is in the confidence set of the worst one; a class without examples is not."""
    seen = np.flatnonzero(support > 0)
    # Classes with equal counts share one test: a thousand classes of fifty images have at most 51 of them.
    pairs, which = np.unique(np.stack([correct[seen], support[seen]], axis=1), axis=0, return_inverse=True)
    k, n = pairs[:, 0], pairs[:, 1]
    rival = _excess(k, n).argmax(axis=1)
    # P(at least k of all k + k' correct examples fall to this class)
    p = np.asarray(scipy.stats.hypergeom.sf(k - 1, n + n[rival], k + k[rival], n))
    result = np.zeros(len(support), dtype=bool)
    result[seen] = (p > level_of_one(confidence, len(seen)))[which.reshape(-1)]
    return result


def _excess(k: Array, n: Array) -> Array:
    """z of the difference of each two accuracies, row minus column, with the pooled variance; 0 where that is 0."""
    pooled = (k[:, None] + k) / (n[:, None] + n)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / n[:, None] + 1 / n))
    gap = (k / n)[:, None] - k / n
    return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0))
