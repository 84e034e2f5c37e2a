"""Means over training seeds and their differences, where every model sees the same images: intervals, tests, power.

A number θ̂_r (an accuracy, the lowest class accuracy, …) of run r varies for two reasons: another seed gives another
model, and other test images give another measurement. Every run sees the same images, so their errors of measurement
are correlated. This is the design of a reader study in radiology, in which every reader reads every case: runs are the
readers, images the cases (Obuchowski & Rockette, Communications in Statistics 1995, 24: 285-308). Let K_rt be the
covariance of θ̂_r and θ̂_t over draws of the images. A mean over k runs, or over the differences of k pairs, has

    variance   s²/k + c        s² the variance over the runs, c = max(0, mean of K_rt, r ≠ t): what more seeds cannot
                               average out
    freedom    ν = (s²/k + c)² / ((s²/k)² / (k − 1))                    Hillis, Statistics in Medicine 2007, 26: 596-619

and θ̄ ± t_ν √variance is its interval. E[s²] holds the variance of the seeds and the part of K that is not shared, so
nothing is counted twice. Groups of runs that are not paired have a term s²/k of their own each (Welch 1947), and

    c = max(0, mean K_rt in the first + mean K_rt in the second − 2 mean K_rt between them).

**Pooled over groups.** Three seeds leave two degrees of freedom. Where t ≥ 3 groups share their seeds, s² of a
difference may instead be the mean of s² over all pairs of groups, which is twice the mean square of the interaction of
groups and seeds, MS(G×S), and has (t − 1)(k − 1) degrees of freedom instead of k − 1: the form in which the method is
used in reader studies. It assumes that seeds move all groups equally much; c is that of the pair.

Three seeds may agree by chance. The interval is therefore never narrower than θ̄ ± z √(mean of all K_rt), that of these
very models on other images, and the p-value never smaller than that of it. What is not linear in the answers, such as
a minimum, is biased by measuring; where the bias b is estimated, b² is added to both variances.

**Coverage** of the 95% interval of a difference in simulated trainings, answers being Bernoulli with probit effects of
image, seed, and both: 95.0-99.8% with 3 seeds, 94.8-99.5% with 5 and 94.5-99.8% with 10, over seeds without effect,
small and large ones, paired or not, for a class, the average and the worst class (`tests/stats/simulated_seeds.py`).
Pooled over five groups 92.8-99.5%; 90.8-97.0% where seeds move the other groups half as much as the two compared.

**Power** of the test at level α for a true difference δ, with T the noncentral t of ν degrees of freedom:

    P(|T| > t_{1−α/2,ν}),   noncentrality δ / √(s²/k + c)

More seeds shrink s²/k, never c: where √c alone hides a difference, more images are needed and no number of seeds is
enough. Power at the difference that was observed is a guide to the next experiment, not evidence about this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its stats are loaded at their first use
from scipy import special

from classwise.core.errors import UserError
from classwise.stats.intervals import POWER, Array

MOST_SEEDS = 1000  # beyond which more seeds are no advice
_POINTS = 200  # of the chi distribution, over which the power is a mean
_HALVINGS = 40
_LARGE = 1e6  # degrees of freedom that are as good as infinitely many


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Numbers of runs, one row per number: what each run has, and how they vary with the images.

    values: (numbers, runs). covariance: (numbers, runs, runs), over draws of the images. bias: (numbers, runs), of
    measuring with so many images. least: (numbers,), a variance that a difference has at least, where all runs agree on
    every image.
    """

    values: Array
    covariance: Array
    bias: Array
    least: Array

    def mean(self, runs: Array) -> MeanOverSeeds:
        """The mean over these runs."""
        return self._combined(np.eye(len(runs)), runs, [len(runs)])

    def difference(self, first: Array, second: Array, paired: bool) -> MeanOverSeeds:
        """The mean of the second runs minus that of the first; paired: run by run, in the order given."""
        runs = np.concatenate([second, first])
        if paired:
            count = len(first)
            found = self._combined(np.hstack([np.eye(count), -np.eye(count)]), runs, [count])
        else:
            signs = np.repeat([1.0, -1.0], [len(second), len(first)])
            found = self._combined(np.diag(signs), runs, [len(second), len(first)])
        return replace(found, least=self.least)

    def pooled(self, groups: Sequence[Array]) -> Array:
        """s² of a difference of two groups, pooled over all of them: 2 MS(G×S). Runs at one place share a seed."""
        values = self.values[:, np.stack(groups)]
        rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=2, keepdims=True)
        rest += values.mean(axis=(1, 2), keepdims=True)
        _, count, seeds = values.shape
        return np.asarray(2 * (rest**2).sum(axis=(1, 2)) / ((count - 1) * (seeds - 1)))

    def _combined(self, weights: Array, runs: Array, sides: Sequence[int]) -> MeanOverSeeds:
        """The sum over the sides of the mean of each side's rows of weights @ values."""
        rows = self.values[:, runs] @ weights.T
        covariance = weights @ self.covariance[:, runs[:, None], runs] @ weights.T
        ends = np.cumsum([0, *sides])
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        shared = np.zeros(len(rows))
        own, spread = [], []
        for part, count in zip(parts, sides, strict=True):
            if count < 2:
                raise UserError("one run says nothing about other seeds; give at least two of each group.")
            block = covariance[:, part, part]
            single = np.trace(block, axis1=1, axis2=2) / count
            between = (block.sum(axis=(1, 2)) - count * single) / (count * (count - 1))
            shared += between
            own.append(single - between)
            spread.append(rows[:, part].var(axis=1, ddof=1))
        if len(sides) == 2:
            shared += 2 * covariance[:, parts[0], parts[1]].mean(axis=(1, 2))
        averaged = np.concatenate([np.full(count, 1 / count) for count in sides])
        return MeanOverSeeds(
            value=rows @ averaged,
            spread=np.array(spread),
            own=np.array(own),
            shared=shared,
            bias=self.bias[:, runs] @ weights.T @ averaged,
            least=np.zeros(len(rows)),
            seeds=np.array(sides, dtype=np.float64)[:, None],
        )


@dataclass(frozen=True, kw_only=True)
class MeanOverSeeds:
    """A mean over seeds, or a difference of two, and what it varies with; arrays have one entry per number.

    value: the mean. spread: s² of each side, (sides, numbers). own: how much of s² the images explain. shared: c before
    the maximum with 0. bias, least: as in `Measured`. seeds: the number of runs of each side, (sides, 1) or (sides,
    numbers); pairs are one side. pooled: s² has so many times k − 1 degrees of freedom.
    """

    value: Array
    spread: Array
    own: Array
    shared: Array
    bias: Array
    least: Array
    seeds: Array
    pooled: int = 1

    @property
    def deviation(self) -> Array:
        """The standard deviation over the runs, or over the pairs; NaN of two groups that are not paired."""
        return np.asarray(np.sqrt(self.spread[0]) if len(self.seeds) == 1 else np.full(len(self.value), np.nan))

    def variance(self) -> Array:
        """Of the mean, over seeds and images."""
        return np.asarray(
            np.maximum(self._of_seeds().sum(axis=0) + np.maximum(self.shared, 0) + self.bias**2, self.least)
        )

    def on_these_models(self) -> Array:
        """The variance of the mean over images alone."""
        over_images = (self.own / self.seeds).sum(axis=0) + self.shared + self.bias**2
        return np.asarray(np.maximum(over_images, self.least))

    def freedom(self) -> Array:
        """Hillis's degrees of freedom; infinite where the runs do not differ."""
        squares = (self._of_seeds() ** 2 / (self.pooled * (self.seeds - 1))).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(squares > 0, self.variance() ** 2 / squares, np.inf)

    def half_width(self, level: float | Array = 0.05) -> Array:
        """Half the width of the interval at confidence 1 − level."""
        return np.asarray(np.maximum(*self._halves(level)))

    def interval(self, confidence: float = 0.95) -> tuple[Array, Array]:
        """Its ends."""
        half = self.half_width(1 - confidence)
        return self.value - half, self.value + half

    def share_interval(self, images: Array, confidence: float = 0.95) -> tuple[Array, Array]:
        """The ends for the mean of a share of so many images: Wilson's interval with the effective number of images
        n* = a(1 − a) / variance (Korn & Graubard, Survey Methodology 1998, 24: 193-201), the number itself where every
        run has 0 or 1. Both ends stay inside [0, 1]."""
        one, two = self._halves(1 - confidence)
        seeds = one >= two
        t = np.where(seeds, _student(1 - confidence, self.freedom()), -special.ndtri((1 - confidence) / 2))
        variance = np.where(seeds, self.variance(), self.on_these_models())
        a = np.clip(self.value, 0, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.where(variance > 0, a * (1 - a) / variance, images)
            n = np.where((a == 0) | (a == 1), images, n)
            centre = (a + t**2 / (2 * n)) / (1 + t**2 / n)
            half = t / (1 + t**2 / n) * np.sqrt(a * (1 - a) / n + t**2 / (4 * n**2))
        return np.maximum(centre - half, 0), np.minimum(centre + half, 1)

    def p_value(self) -> Array:
        """Two-sided, of a true value of 0."""
        size = np.abs(self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = 2 * scipy.stats.t.sf(size / np.sqrt(self.variance()), self.freedom())
            z = 2 * special.ndtr(-size / np.sqrt(self.on_these_models()))
        known = np.where(size == 0, 1.0, np.fmax(t, z))
        return np.where(np.isnan(self.value), np.nan, known)

    def planned(self, count: float | Array | None = None) -> MeanOverSeeds:
        """The same as a plan, with so many runs on every side, by default as many as there are: with the variances that
        were seen, s² being at least what the images explain."""
        seeds = self.seeds if count is None else np.broadcast_to(count, self.spread.shape)
        return replace(self, spread=np.maximum(self.spread, self.own), seeds=seeds)

    def power(self, difference: Array, level: float | Array = 0.05) -> Array:
        """The probability that a true difference of this size is found at this level, with as many seeds as now."""
        return self._chances(level)(np.abs(difference))

    def detectable(self, level: float | Array = 0.05, power: float = POWER) -> Array:
        """The smallest true difference that is found with this power, with as many seeds as now."""
        plan = self.planned()
        chances = plan._chances(level)
        low, high = np.zeros_like(self.value), 2 * plan.half_width(level)
        while (short := chances(high) < power).any():
            high = np.where(short, 2 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = chances(middle) >= power
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(high)

    def seeds_needed(self, level: float | Array = 0.05, power: float = POWER) -> Array:
        """Seeds of each group with which a true difference of the observed size is found with this power; infinite
        where more than `MOST_SEEDS` would be needed, or more images."""
        few, many = np.full_like(self.value, 1), np.full_like(self.value, MOST_SEEDS)
        ever = self.planned(MOST_SEEDS).power(self.value, level) >= power
        while (many - few > 1).any():
            middle = np.maximum(np.floor((few + many) / 2), 2)
            enough = self.planned(middle).power(self.value, level) >= power
            few, many = np.where(enough, few, middle), np.where(enough, middle, many)
        return np.where(ever, many, np.where(np.isnan(self.value), np.nan, np.inf))

    def _chances(self, level: float | Array) -> Callable[[Array], Array]:
        """The power as a function of the true difference: that of a known variance, averaged over its distribution."""
        spread, freedom = np.sqrt(self.variance())[:, None], np.minimum(self.freedom(), _LARGE)[:, None]
        chi = np.sqrt(special.gammaincinv(freedom / 2, (np.arange(_POINTS) + 0.5) / _POINTS) * 2 / freedom)
        beyond = self.half_width(level)[:, None] * chi

        def chances(size: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                sides = (special.ndtr((side * size[:, None] - beyond) / spread) for side in (1, -1))
                return np.asarray(sum(sides).mean(axis=1))

        return chances

    def _of_seeds(self) -> Array:
        return np.asarray(self.spread / self.seeds)

    def _halves(self, level: float | Array) -> tuple[Array, Array]:
        """Half the width over seeds and images, and over images alone."""
        t, z = _student(level, self.freedom()), -special.ndtri(np.asarray(level) / 2)
        return t * np.sqrt(self.variance()), z * np.sqrt(self.on_these_models())


def beforehand(sd: float, seeds: int, image_sd: float = 0.0, paired: bool = False, groups: int = 2) -> MeanOverSeeds:
    """What a difference would vary with, from stated numbers, before anything is trained: ask it for `detectable`.

    sd: the standard deviation over seeds, of the differences of pairs if they are paired, else of the runs of each
    group. image_sd: of the difference over draws of the images, which more seeds do not shrink. groups: how many there
    are, the control included, that the variance of pairs is pooled over.
    """
    for name, value in (("sd", sd), ("image_sd", image_sd)):
        if not 0 <= value < np.inf:
            raise UserError(f"{name} must be at least 0, such as 0.01 for one point; got {value:g}.")
    if seeds < 2:
        raise UserError(f"seeds must be at least 2, for one says nothing about the others; got {seeds}.")
    if groups < 2 or (groups > 2 and not paired):
        raise UserError(f"groups must be at least 2, and 2 where runs are not paired; got {groups}.")
    sides, nothing = 1 if paired else 2, np.zeros(1)
    return MeanOverSeeds(
        value=nothing,
        spread=np.full((sides, 1), sd**2),
        own=np.zeros((sides, 1)),
        shared=np.full(1, image_sd**2),
        bias=nothing,
        least=nothing,
        seeds=np.full((sides, 1), float(seeds)),
        pooled=groups - 1,
    )


def _student(level: float | Array, freedom: Array) -> Array:
    """The two-sided quantile of Student's t."""
    return np.asarray(scipy.stats.t.ppf(1 - np.asarray(level) / 2, freedom))
