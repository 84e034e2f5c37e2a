"""agreement, paired and rho: one run against another."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from classwise.core.errors import UserError
from classwise.metrics import agreement, paired, rho


def test_agreement_agrees_with_scipy(from_correct):
    first, second = np.array([10, 20, 20, 35, 50]), np.array([12, 10, 25, 25, 40])
    result = agreement.compute(from_correct(first, 50), from_correct(second, 50))
    spearman, kendall = stats.spearmanr(first, second), stats.kendalltau(first, second)
    assert (result.spearman, result.spearman_p) == pytest.approx((spearman.statistic, spearman.pvalue))
    assert (result.kendall, result.kendall_p) == pytest.approx((kendall.statistic, kendall.pvalue))
    assert result.classes == 5


def test_agreement_matches_classes_by_name(from_correct):
    result = agreement.compute(
        from_correct([1, 2, 3, 4], 5, ["a", "b", "c", "d"]), from_correct([4, 2, 1, 3], 5, ["d", "b", "a", "c"])
    )
    assert result.spearman == pytest.approx(1)
    assert result.kendall == pytest.approx(1)


def test_agreement_leaves_out_classes_absent_from_either(make, from_correct):
    partial = make([0, 0, 2, 2], [0, 1, 2, 2], ["a", "b", "c"])
    assert agreement.compute(partial, from_correct([3, 1, 2], 5, ["a", "b", "c"])).classes == 2


def test_agreement_with_a_run_that_orders_nothing_is_nan(from_correct, recwarn):
    result = agreement.compute(from_correct([1, 2, 3], 5), from_correct([2, 2, 2], 5))
    assert np.isnan([result.spearman, result.spearman_p, result.kendall, result.kendall_p]).all()
    assert not recwarn.list


def test_agreement_needs_two_shared_classes(from_correct):
    with pytest.raises(UserError, match=r"these share 1\. First run: a, b\. Second run: b, c\."):
        agreement.compute(from_correct([1, 2], 5, ["a", "b"]), from_correct([1, 2], 5, ["b", "c"]))


@pytest.fixture
def two_runs(make):
    rng = np.random.default_rng(5)
    label = np.repeat(np.arange(4), [60, 40, 0, 30])
    runs = [
        np.where(rng.random(130) < p[label], label, (label + 1) % 4) for p in np.array([[0.5, 0.6, 0, 0.9], [0.8] * 4])
    ]
    return label, *(make(label, prediction, "abcd") for prediction in runs)


def test_paired_agrees_with_statsmodels(two_runs):
    label, first, second = two_runs
    table = paired.compute(first, second).set_index("class")
    p = {}
    for number, name in [(0, "a"), (1, "b"), (3, "d"), (None, paired.ALL)]:
        rows = slice(None) if number is None else label == number
        x, y = first.correct[rows], second.correct[rows]
        counts = [[(x & y).sum(), (x & ~y).sum()], [(~x & y).sum(), (~x & ~y).sum()]]
        p[name] = mcnemar(counts, exact=True).pvalue
        assert table.loc[name, "p"] == pytest.approx(p[name])
        assert (table.loc[name, "only_first"], table.loc[name, "only_second"]) == (counts[0][1], counts[1][0])
        assert table.loc[name, "n"] == len(x)
        assert table.loc[name, "difference"] == pytest.approx(y.mean() - x.mean())
        assert (table.loc[name, "first"], table.loc[name, "second"]) == pytest.approx((x.mean(), y.mean()))
    assert p[paired.ALL] < 0.01  # the case is not a trivial one
    corrected = multipletests([p["a"], p["b"], p["d"]], method="holm")[1]
    np.testing.assert_allclose(table.loc[["a", "b", "d"], "p_holm"], corrected)
    assert table.loc[paired.ALL, "p_holm"] == table.loc[paired.ALL, "p"]
    assert table.loc["c", ["first", "p", "p_holm"]].isna().all()


def test_paired_with_itself_finds_nothing(two_runs):
    table = paired.compute(two_runs[1], two_runs[1]).dropna()
    assert (table["p"] == 1).all()
    assert (table["difference"] == 0).all()


def test_paired_joins_by_example_whatever_the_order(make):
    first = make([0, 1, 1, 0], [0, 1, 0, 0], "ab", index=[10, 11, 12, 13])
    second = make([1, 0, 0, 1], [1, 1, 0, 1], "ab", index=[12, 13, 99, 11])
    table = paired.compute(first, second)
    assert table["n"].tolist() == [1, 2, 3]
    assert table["only_first"].tolist() == [1, 0, 1]
    assert table["only_second"].tolist() == [0, 1, 1]
    assert table.attrs == {"paired": 3, "first": 4, "second": 4}


def test_paired_refuses_what_cannot_be_compared(make):
    first = make([0, 1], [0, 1], ["cat", "dog"], index=[1, 2])
    with pytest.raises(UserError, match="share no example: 2 and 1 examples"):
        paired.compute(first, make([0], [0], ["cat", "dog"], index=[3]))
    with pytest.raises(
        UserError, match=r"different labels to 1 of 2 shared examples, such as example 2: 'dog' and 'cat'"
    ):
        paired.compute(first, make([0, 0], [0, 0], ["cat", "dog"], index=[1, 2]))
    with pytest.raises(UserError, match=r"same classes: only one of them knows dog, fish"):
        paired.compute(first, make([0], [0], ["cat", "fish"], index=[1]))
    with pytest.raises(UserError, match="the order differs"):
        paired.compute(first, make([0], [0], ["dog", "cat"], index=[1]))


def test_rho_by_hand(from_correct):
    base, run = from_correct([2, 8], 10), from_correct([3, 6], 10)
    assert rho.compute(run, base) == pytest.approx(0.5 - 0.1)  # worst .2 → .3, average .5 → .45
    assert rho.compute(base, base) == 0


def test_rho_against_a_class_never_right_is_nan(from_correct):
    assert np.isnan(rho.compute(from_correct([3, 6], 10), from_correct([0, 6], 10)))
