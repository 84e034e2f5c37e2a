"""Comparisons of two proportions, against independent references."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from classwise.stats import comparisons


@pytest.mark.slow
def test_holm_agrees_with_statsmodels():
    p = np.array([0.04, 0.001, 0.03, 0.8, 0.001, 0.2])
    np.testing.assert_allclose(comparisons.holm(p), multipletests(p, method="holm")[1])
    np.testing.assert_allclose(
        comparisons.holm(np.insert(p, 2, np.nan)), np.insert(multipletests(p, method="holm")[1], 2, np.nan)
    )


def test_paired_interval_covers_as_it_says():
    """Correlated answers of 200 examples: 95% of 4000 intervals hold the true difference, within the noise."""
    rng = np.random.default_rng(0)
    cells = rng.multinomial(200, [0.35, 0.15, 0.08, 0.42], size=4000)
    a, b, c, d = cells.T
    phi = comparisons.correlation_of_answers(a, b, c, d)
    low, high = comparisons.newcombe(a + b, cells.sum(1), a + c, cells.sum(1), phi)
    assert ((low <= -0.07) & (high >= -0.07)).mean() == pytest.approx(0.95, abs=0.012)


def test_permuted_counts_ties_on_both_sides_and_what_was_seen():
    assert comparisons.permuted(np.array([1.0, 2.0, 3.0]), 2.0) == (3 / 4, 3 / 4)
    assert comparisons.permuted(np.array([1.0, 2.0, 3.0]), 2.0, itself=0) == (2 / 3, 2 / 3)
    assert comparisons.permuted(np.array([1.0, 2.0]), 2.0 + 1e-13) == (2 / 3, 1.0)
