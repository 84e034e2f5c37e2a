"""difference: of two runs by class, with Newcombe's interval and an exact test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep

from classwise.core.errors import UserError
from classwise.metrics import difference, paired

FIELDS = ["difference", "low", "high"]


def two(make, both: int, only_first: int, only_second: int, neither: int):
    """Two runs of one class with these answers."""
    answers = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], [both, only_first, only_second, neither], axis=0)
    label = np.zeros(len(answers), dtype=int)
    return (make(label, 1 - answers[:, run], ["cat", "dog"]) for run in (0, 1))


def test_published_paired_interval(make):
    """Fagerland, Lydersen & Laake, Statistical Analysis of Contingency Tables (2017), chapter 8: Cavo et al. 2012."""
    row = difference.compute(*two(make, 59, 16, 6, 80)).iloc[0]
    np.testing.assert_allclose(row[FIELDS].astype(float), [-0.0621, -0.1186, -0.0046], atol=5e-5)


def test_paired_test_is_mcnemar(make):
    first, second = two(make, 10, 3, 9, 20)
    ours, theirs = difference.compute(first, second), paired.compute(first, second)
    np.testing.assert_array_equal(ours[["p", "p_holm"]], theirs[["p", "p_holm"]])
    assert ours["n_first"].tolist() == ours["n_second"].tolist() == [42, 0, 42]


def test_without_correlation_paired_and_unpaired_intervals_agree(make):
    """ad = bc, so φ = 0."""
    first, second = two(make, 6, 12, 10, 20)
    one, other = (difference.compute(first, second, paired=p).iloc[0] for p in (True, False))
    np.testing.assert_allclose(one[FIELDS].astype(float), other[FIELDS].astype(float))


@pytest.mark.parametrize("answers", [(30, 0, 0, 0), (0, 0, 0, 30), (0, 30, 0, 0), (20, 0, 0, 10), (1, 0, 0, 0)])
def test_ends_stay_in_order_and_in_range(make, answers):
    row = difference.compute(*two(make, *answers)).iloc[0]
    assert -1 <= row["low"] <= row["difference"] <= row["high"] <= 1


def test_unpaired_agrees_with_statsmodels_and_scipy(from_correct):
    first, second = from_correct([10, 40, 3], [50, 60, 30]), from_correct([30, 35, 4], [80, 50, 20])
    table = difference.compute(first, second, paired=False, confidence=0.9)
    counts = [(10, 50, 30, 80), (40, 60, 35, 50), (3, 30, 4, 20), (53, 140, 69, 150)]
    p = []
    for row, (k, n, j, m) in zip(table.to_dict("records"), counts, strict=True):
        low, high = confint_proportions_2indep(j, m, k, n, method="newcomb", compare="diff", alpha=0.1)
        assert (row["low"], row["high"]) == pytest.approx((low, high))
        assert row["difference"] == pytest.approx(j / m - k / n)
        p.append(stats.fisher_exact([[k, n - k], [j, m - j]]).pvalue)
    np.testing.assert_allclose(table["p"], p)
    np.testing.assert_allclose(table["p_holm"][:-1], multipletests(p[:-1], method="holm")[1])


def test_a_class_one_run_lacks_is_nan(make, from_correct):
    partial = make([0, 0, 2], [0, 1, 2], ["a", "b", "c"])
    table = difference.compute(partial, from_correct([3, 1, 2], 5, ["a", "b", "c"]), paired=False).set_index("class")
    assert table.loc["b", ["first", "difference", "low", "high", "p", "p_holm"]].isna().all()
    assert table.loc["a", "p_holm"] == min(1, 2 * table.loc["a", "p"])


def test_classes_must_be_the_same(from_correct):
    with pytest.raises(UserError, match="same classes in the same order"):
        difference.compute(from_correct([1, 1], 2, ["a", "b"]), from_correct([1, 1], 2, ["b", "a"]), paired=False)
