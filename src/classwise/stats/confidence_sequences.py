"""Which class is the worst, from as few images as possible: confidence sequences, and a race between the classes.

Of a class's n images θ are robust, and t of them, k robust, have been attacked in random order without replacement. The
prior-posterior ratio of Waudby-Smith & Ramdas (NeurIPS 2020) is at the true θ a nonnegative martingale from 1 on:

    R_t(θ) = π₀(θ) / π_t(θ),   π₀ uniform on 0…n,   π_t(k + j) = C(n−t, j) B(1+k+j, 1+n−k−j) / B(1+k, 1+t−k)

so by Ville's inequality {θ : R_t(θ) < 1/α} contains the truth at all t simultaneously with probability at least 1 − α:
one may look after every image and stop at any time. At t = n it is the truth alone. π_t is log-concave, so the set is
an interval. `race` uses it with α/C for each of C classes, so that the intervals are simultaneous (union bound).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from classwise.core.errors import UserError
from classwise.stats import intervals
from classwise.stats.intervals import Array

PAPERS = ("waudbysmith2020",)

_FIRST = 16  # images of each class in the first round
_ROUND = 160  # images of a round at least, so that few classes left still fill the batches
_GROWTH = 4  # a round adds at least a quarter of what a class has had: looks are rare, overshoot stays small


@functools.lru_cache(maxsize=1 << 16)
def interval(robust: int, seen: int, size: int, alpha: float) -> tuple[int, int]:
    """The smallest and largest number of robust images among `size`, given `robust` among the `seen` ones."""
    left = size - seen
    j = np.arange(left + 1)
    choose = special.gammaln(left + 1) - special.gammaln(j + 1) - special.gammaln(left - j + 1)
    update = special.betaln(1 + robust + j, 1 + size - robust - j) - special.betaln(1 + robust, 1 + seen - robust)
    inside = np.flatnonzero(choose + update > math.log(alpha) - math.log(size + 1))
    return robust + int(inside[0]), robust + int(inside[-1])


def proportion(robust: int, seen: int, alpha: float) -> tuple[float, float]:
    """The same for draws from an infinite population: {p : posterior density > α}, Beta(1+k, 1+t−k)'s."""
    return _lowest(robust, seen, alpha), 1 - _lowest(seen - robust, seen, alpha)


def _lowest(hits: int, seen: int, alpha: float) -> float:
    """The smallest p at which the density of Beta(1 + hits, 1 + misses) exceeds α."""
    if hits == 0:
        return 0.0
    misses = seen - hits
    level = math.log(alpha) + float(special.betaln(1 + hits, 1 + misses))

    def excess(p: float) -> float:
        return float(special.xlogy(hits, p) + special.xlog1py(misses, -p)) - level

    return float(optimize.brentq(excess, 1e-300, hits / seen))


@dataclass(frozen=True, kw_only=True)
class RaceState:
    """The state of a race, one entry per class; a class without images is NaN and not in question.

    whole: images; right: those classified correctly when clean, all others are broken at no cost; seen: how many of
    those were attacked; robust: how many of these survived. low, high: bounds of robust / whole over the full data.
    open: whether it may still be the worst.
    """

    whole: Array
    right: Array
    seen: Array
    robust: Array
    low: Array
    high: Array
    open: Array
    rounds: int = 0

    @property
    def estimate(self) -> Array:
        """Robust accuracy: the clean accuracy times the share that survived; NaN where nothing was attacked yet."""
        known = np.where(self.right == 0, 0.0, intervals.ratio(self.robust, self.seen))
        return np.asarray(known * intervals.ratio(self.right, self.whole))

    def decided(self, tolerance: float) -> bool:
        """One class is left, or those left are surely within `tolerance` of one another."""
        spread = self.high[self.open].max() - self.low[self.open].min()
        return bool(self.open.sum() == 1 or spread <= tolerance)


def race(
    right: Array,
    whole: Array,
    attack: Callable[[Array], Array],
    confidence: float = 0.95,
    tolerance: float = 0.0,
    watch: Callable[[RaceState], None] = lambda state: None,
) -> RaceState:
    """Attack more images of the classes still in question, round by round, until the worst one is known.

    attack: told how many images of each class are to have been attacked, the first ones in its random order, it
        says how many of them are robust.

    A class leaves when its lower bound exceeds the smallest upper bound. With probability at least `confidence` over
    the random orders every class of lowest robust accuracy is among those still `open` at the end; with a tolerance
    these differ from each other by no more than that. Rounds depend on the counts alone, so a race can be repeated.
    """
    alpha = (1 - intervals.check_confidence(confidence)) / max(int((whole > 0).sum()), 1)
    check_tolerance(tolerance)
    if not (whole > 0).any():
        raise UserError("no class has an example: there is no worst one. Select at least one example.")
    none = np.zeros_like(whole)
    low, high = intervals.ratio(none, whole), intervals.ratio(right, whole)
    state = RaceState(whole=whole, right=right, seen=none, robust=none, low=low, high=high, open=whole > 0)
    while not state.decided(tolerance):
        seen = _after_next_round(state)
        state = _narrowed(state, seen, attack(seen), alpha)
        watch(state)
    return state


def check_tolerance(tolerance: float) -> None:
    """Raise unless it is a difference between two accuracies."""
    if not 0 <= tolerance < 1:
        remedy = f" Did you mean {tolerance / 100:g}?" if 1 <= tolerance < 100 else ""
        raise UserError(f"tolerance must be at least 0 and below 1, such as 0.02; got {tolerance:g}.{remedy}")


def _after_next_round(state: RaceState) -> Array:
    """How many images of each class will have been attacked."""
    more = np.maximum(state.seen // _GROWTH, max(_FIRST, -(-_ROUND // int(state.open.sum()))))
    return np.where(state.open, np.minimum(state.seen + more, state.right), state.seen)


def _narrowed(before: RaceState, seen: Array, robust: Array, alpha: float) -> RaceState:
    """The bounds of the classes in question after a round, and which of them stay."""
    low, high = before.low.copy(), before.high.copy()
    for c in np.flatnonzero(before.open):
        ends = interval(int(robust[c]), int(seen[c]), int(before.right[c]), alpha)
        low[c], high[c] = (end / before.whole[c] for end in ends)
    stay = before.open & (low <= high[before.open].min())
    return replace(before, seen=seen, robust=robust, low=low, high=high, open=stay, rounds=before.rounds + 1)


def population(state: RaceState, confidence: float = 0.95) -> tuple[Array, Array]:
    """Bounds of each class's robust accuracy in the population the images were drawn from, all classes together.

    Robust accuracy = P(right when clean) · P(robust | right when clean). The first factor is bounded by the exact
    interval of the clean pass over all images, the second by the confidence sequence above, each with half of α/C.
    """
    half = (1 - intervals.check_confidence(confidence)) / max(int((state.whole > 0).sum()), 1) / 2
    low, high = intervals.bounds(state.right, state.whole, 1 - half, "exact")
    shares = [proportion(int(k), int(t), half) for k, t in zip(state.robust, state.seen, strict=True)]
    return low * np.array([share[0] for share in shares]), high * np.array([share[1] for share in shares])
