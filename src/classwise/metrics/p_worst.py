"""Posterior probability that each class is the worst one, given the examples seen.

With Jeffreys' prior the accuracy of class c, k_c of n_c correct, has the posterior Beta(k_c + ½, n_c − k_c + ½),
independent of the others, and

    P(c is worst) = ∫ f_c(x) Π_{j≠c} S_j(x) dx        f density, S survival function.

The integral is taken over the angle t with x = sin² t, where every density is the analytic function
2 sin^{2k} t cos^{2(n−k)} t / B(k + ½, n − k + ½) of standard deviation about 1/(2√n), by Gauss-Legendre panels fitted
to it: deterministic, with an error far below 1e-6. A class without examples is NaN (it may be the worst; nothing is
known of it); the others sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.stats.intervals import Array

PAPERS = ()  # ours, or common knowledge

_NEGLIGIBLE = 1e-13  # posterior mass cut off at either end
_TINY = 1e-16  # keeps f/S finite
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def compute(records: Records) -> PerClass:
    """The probability of each class; `low` and `high` are NaN, since a posterior probability has no interval."""
    correct, support = accuracy.counts(records)
    values, none = probabilities(correct, support), np.full(records.num_classes, np.nan)
    return PerClass(values=values, support=support, low=none, high=none, class_names=records.class_names)


def probabilities(correct: Array, support: Array) -> Array:
    """P(c is worst) from the counts of each class."""
    seen = support > 0
    # Classes with equal counts share one posterior: a thousand classes of fifty images have at most 51 of them.
    pairs, which, ties = np.unique(
        np.stack([correct[seen], support[seen] - correct[seen]], axis=1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    result = np.full(len(support), np.nan)
    result[seen] = _integrate(_Posteriors(pairs[:, 0], pairs[:, 1], ties))[which.reshape(-1)]
    return np.asarray(result / np.nansum(result))


@dataclass(frozen=True)
class _Posteriors:
    """Distinct posteriors over the angle, each by its hits and misses, and how many classes have it."""

    hits: Array
    misses: Array
    ties: Array

    @cached_property
    def start(self) -> Array:
        """The angle below which each has no mass worth counting."""
        return np.asarray(np.arcsin(np.sqrt(special.betaincinv(self.hits + 0.5, self.misses + 0.5, _NEGLIGIBLE))))

    @cached_property
    def scale(self) -> Array:
        return np.asarray(0.5 / np.sqrt(self.hits + self.misses))

    def at(self, t: Array, near: Array) -> tuple[Array, Array]:
        """The hazard f/S of each of the `near` ones, and Π S over all classes, at the angles t."""
        hits, misses = self.hits[near, None], self.misses[near, None]
        log_density = (
            np.log(2)
            + special.xlogy(2 * hits, np.sin(t))
            + special.xlogy(2 * misses, np.cos(t))
            - special.betaln(hits + 0.5, misses + 0.5)
        )
        # Four times as fast as betaincc; the digits lost where S < 1e-13 are those where the integrand is nothing.
        survival = np.maximum(1 - special.betainc(hits + 0.5, misses + 0.5, np.sin(t) ** 2), _TINY)
        return np.exp(log_density) / survival, np.exp(self.ties[near] @ np.log(survival))


def _integrate(posteriors: _Posteriors) -> Array:
    """P(one class is worst) for each distinct posterior: the integral of its hazard times Π S."""
    total = np.zeros(len(posteriors.ties))
    left, end = posteriors.start.min(), np.pi / 2
    while left < end:
        begun = posteriors.start <= left
        hazard, above = posteriors.at(np.array([left]), begun)
        if above[0] < _NEGLIGIBLE:
            break
        # No wider than the narrowest posterior, nor than the angle over which Π S falls by e².
        width = min(posteriors.scale[begun].min(), 2 / (posteriors.ties[begun] @ hazard[:, 0]))
        narrower = posteriors.start[~begun & (posteriors.scale < width)].min(initial=end)
        right = min(left + width, narrower)
        near = posteriors.start < right  # the others surely lie above this panel: hazard 0, survival 1
        hazard, above = posteriors.at((left + right) / 2 + (right - left) / 2 * _NODES, near)
        total[near] += (hazard * above) @ _WEIGHTS * (right - left) / 2
        left = right
    return total
