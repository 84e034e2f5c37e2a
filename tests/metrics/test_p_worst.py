from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from classwise.metrics import p_worst
from for_each import for_each

COUNTS = {
    "ten classes": ([63, 71, 39, 25, 36, 38, 57, 59, 63, 66], [100] * 10),
    "unequal sizes": ([3, 30, 290, 0], [10, 100, 1000, 2]),
    "none right": ([0, 0, 1], [5, 9, 5]),
    "all right": ([5, 9, 5], [5, 9, 5]),
    "wide and narrow": ([0, 1, 30_000, 3], [1, 1, 100_000, 5]),
}


def reference(correct, support):
    """P(c is worst) = ∫₀¹ Π_{j≠c} S_j(F_c⁻¹(u)) du, by quadrature between the quantiles of all posteriors."""
    posterior = [stats.beta(k + 0.5, n - k + 0.5) for k, n in zip(correct, support, strict=True)]
    edges = np.unique([d.ppf([1e-12, 1e-6, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-6, 1 - 1e-12]) for d in posterior])
    result = []
    for own in posterior:
        others = [d for d in posterior if d is not own]

        def all_above(u, own=own, others=others):
            return np.prod([d.sf(own.ppf(u)) for d in others], axis=0)

        panels = itertools.pairwise(own.cdf(edges))
        result.append(sum(integrate.fixed_quad(all_above, a, b, n=12)[0] for a, b in panels))
    return np.array(result)


@pytest.mark.slow
@pytest.mark.parametrize("case", COUNTS)
def test_agrees_with_quadrature_over_quantiles(case):
    correct, support = map(np.array, COUNTS[case])
    np.testing.assert_allclose(p_worst.probabilities(correct, support), reference(correct, support), atol=1e-6)


def test_agrees_with_drawing():
    correct, support = map(np.array, COUNTS["unequal sizes"])
    drawn = np.random.default_rng(0).beta(correct + 0.5, support - correct + 0.5, size=(200_000, 4))
    shares = np.bincount(drawn.argmin(axis=1), minlength=4) / len(drawn)
    np.testing.assert_allclose(p_worst.probabilities(correct, support), shares, atol=0.004)


@for_each(("correct", "support"), [(0, 50), (25, 50), (50, 50), (1, 2), (3000, 10_000)])
@for_each("classes", [1, 2, 1000])
def test_equal_classes_are_equally_likely(correct, support, classes):
    total = np.ones(classes, dtype=int)
    np.testing.assert_allclose(p_worst.probabilities(correct * total, support * total), 1 / classes, rtol=1e-12)


@pytest.mark.parametrize("support", [50, 5000])
@pytest.mark.parametrize("best", [0, 0.001, 0.8, 1])
def test_integral_of_a_thousand_classes_is_one_before_it_is_normalised(support, best):
    correct = np.random.default_rng(2).binomial(support, np.linspace(0, best, 1000))
    pairs, ties = np.unique(correct, return_counts=True)
    total = p_worst._integrate(p_worst._Posteriors(pairs, support - pairs, ties)) @ ties
    assert total == pytest.approx(1, abs=1e-8)


def test_absent_class_is_nan_and_the_others_sum_to_one(make):
    values = p_worst.compute(make([0] * 10 + [2] * 10, [0] * 4 + [2] * 16, "abc")).values
    assert np.isnan(values[1])
    assert np.nansum(values) == pytest.approx(1)
    assert values[0] > 0.95


def test_better_class_is_less_likely_the_worst():
    values = p_worst.probabilities(np.arange(11), np.full(11, 10))
    assert (np.diff(values) < 0).all()
