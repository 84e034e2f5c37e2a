"""The class of lowest accuracy, with an interval for the lowest of the true class accuracies.

The interval is for θ = min_c p_c, p_c being the true accuracies. The observed minimum lies below θ on average, the more
so the more classes are near the bottom, so the interval of the class that happens to come out lowest is not one for θ.
With lower bounds L_c and upper bounds U_c of single classes,

    min_c L_c ≤ θ fails only if L_w > p_w for a truly worst class w: one event, so no correction is needed;
    θ ≤ min_c U_c fails if U_c < θ ≤ p_c for any class c: all m upper bounds must hold together.

So low = min_c L_c at the one-sided level α/2, and high = min_c U_c at the one-sided level 1 − (1 − α/2)^(1/m) (Šidák
over the m classes that have examples). Together they miss θ with probability at most α, whatever the p_c. The exact
interval is the default because the guarantee rests on the bounds holding; with Wilson it is approximate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from classwise.metrics import accuracy, intervals
from classwise.metrics.intervals import Array, Interval
from classwise.records import Records


@dataclass(frozen=True)
class Worst:
    """The class seen to be worst (the first, if several tie), and the interval for the lowest true accuracy."""

    number: int
    name: str
    value: float
    low: float
    high: float


def compute(records: Records, interval: Interval = "exact", confidence: float = 0.95) -> Worst:
    correct, support = accuracy.counts(records)
    values = intervals.ratio(correct, support)
    number = int(np.nanargmin(values))
    low, high = bounds(correct[support > 0], support[support > 0], confidence, interval)
    return Worst(number, records.class_names[number], float(values[number]), float(low), float(high))


def bounds(
    correct: Array, support: Array, confidence: float = 0.95, interval: Interval = "exact"
) -> tuple[Array, Array]:
    """The interval for the lowest true accuracy; the classes, all with examples, are the last axis."""
    m = np.shape(correct)[-1]
    low, _ = intervals.bounds(correct, support, confidence, interval)
    tail = 1 - (1 - (1 - confidence) / 2) ** (1 / m)
    _, high = intervals.bounds(correct, support, 1 - 2 * tail, interval)
    return low.min(axis=-1), high.min(axis=-1)
