"""How much further apart the classes of one run are than those of another: ratio of CV, difference of MCD.

The CV of observed accuracies is biased upwards, since sampling alone separates the classes. The unbiased estimate is

    V = (1/C) Σ_c (a_c − ā)² − (1 − 1/C) (1/C) Σ_c a_c (1 − a_c)/(n_c − 1)            in percent²

which is negative where the classes differ by less than chance. The interval of V/V₀ contains every r that the data do
not reject: those for which the bootstrap interval of V − rV₀ contains 0 (Fieller 1954; Hwang 1995), the examples
resampled within each class together with both runs' answers. It has no upper end where V₀ may be 0.

The interval of MCD (`gap`) holds for the *true* accuracies: of the best class and of the worst each by the bounds of
`metrics.worst`, at half the error; that of a difference of two runs at half of that. It is conservative. Tian et al.
(KDD 2021, Table 5) and Benz et al. (2020) compare CV and MCD of training with and without attacks; the intervals are
ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from classwise.core.records import Records
from classwise.metrics import accuracy, mcd, paired, worst
from classwise.stats import intervals
from classwise.stats.intervals import Array, Estimate

PAPERS = ()  # ours, or common knowledge

_DRAWS = 4000


@dataclass(frozen=True, kw_only=True)
class Widening:
    """The ratio of the two V with its interval (NaN where neither is above 0), the V, and the change of MCD."""

    ratio: float
    ratio_low: float
    ratio_high: float
    cv: float
    base_cv: float
    gap: float
    gap_low: float
    gap_high: float


def compute(records: Records, base: Records, confidence: float = 0.95, seed: int = 0) -> Widening:
    """`records` against `base`, over the examples both hold."""
    alpha = 1 - intervals.check_confidence(confidence)
    cells = _cells(records, base)
    n = cells.sum(axis=1)
    own, other = (float(_unbiased(right, n)) for right in _right(cells))
    drawn = np.random.default_rng(seed).multinomial(n, cells / n[:, None], size=(_DRAWS, len(n)))
    # Where the data are the truth, their own CV is what V* estimates.
    errors = [_unbiased(star, n) - _seen(right, n) for star, right in zip(_right(drawn), _right(cells), strict=True)]
    low, high = _fieller(own, other, errors[0], errors[1], alpha)
    mine, theirs = (gap(run, 1 - alpha / 2) for run in (records, base))
    return Widening(
        ratio=max(own, 0.0) / other if other > 0 else float("inf") if own > 0 else float("nan"),
        ratio_low=low,
        ratio_high=high,
        cv=own,
        base_cv=other,
        gap=mine.value - theirs.value,
        gap_low=mine.low - theirs.high,
        gap_high=mine.high - theirs.low,
    )


def unbiased(records: Records) -> float:
    """V of one run."""
    correct, support = accuracy.counts(records)
    return float(_unbiased(correct[support > 0], support[support > 0]))


def gap(records: Records, confidence: float = 0.95) -> Estimate:
    """MCD with an interval for the gap between the best and the worst of the true class accuracies."""
    correct, support = (part[accuracy.counts(records)[1] > 0] for part in accuracy.counts(records))
    each = 1 - (1 - intervals.check_confidence(confidence)) / 2
    low_worst, high_worst = worst.bounds(correct, support, each)
    high_best, low_best = (1 - end for end in worst.bounds(support - correct, support, each))
    low = max(0.0, float(low_best - high_worst))
    return Estimate(mcd.compute(records), low, float(high_best - low_worst), int(support.sum()))


def _cells(records: Records, base: Records) -> Array:
    """Per class how many examples both, only the first, only the second, and neither got right.

    By class name: what is drawn from them must not depend on how the classes are numbered.
    """
    table = paired.compute(records, base).iloc[:-1].sort_values("class", kind="stable")
    table = table[table["n"] > 0]
    n, only_first, only_second = (table[name].to_numpy() for name in ("n", "only_first", "only_second"))
    both = np.rint(table["first"].to_numpy() * n).astype(np.int64) - only_first
    return np.stack([both, only_first, only_second, n - both - only_first - only_second], axis=1)


def _right(cells: Array) -> tuple[Array, Array]:
    """How many of each class the first and the second run got right; classes are the axis before the last."""
    return cells[..., 0] + cells[..., 1], cells[..., 0] + cells[..., 2]


def _seen(correct: Array, support: Array) -> Array:
    """CV in percent²; the classes are the last axis."""
    return np.asarray((100 * correct / support).var(axis=-1))


def _unbiased(correct: Array, support: Array) -> Array:
    a = correct / support
    chance = (a * (1 - a) / np.maximum(support - 1, 1)).mean(axis=-1)
    return np.asarray(_seen(correct, support) - 100**2 * (1 - 1 / len(support)) * chance)


def _fieller(own: float, other: float, error: Array, other_error: Array, alpha: float) -> tuple[float, float]:
    """The ends of {r = tan t : the interval of own · cos t − other · sin t holds 0}, t from 0 to a right angle."""

    def end(t: float, tail: float) -> float:
        c, s = np.cos(t), np.sin(t)
        return float(c * own - s * other - np.quantile(c * error - s * other_error, tail))

    def crossing(tail: float) -> float:
        if end(0.0, tail) <= 0:
            return 0.0
        if end(np.pi / 2, tail) >= 0:
            return float("inf")
        return float(np.tan(optimize.brentq(end, 0.0, np.pi / 2, args=(tail,), xtol=1e-10)))

    return crossing(1 - alpha / 2), crossing(alpha / 2)
