"""cv, mcd, tail, vulnerable and cvc: how far apart the classes are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from classwise.core.errors import UserError
from classwise.metrics import cv, cvc, mcd, tail, vulnerable


def test_cv_and_mcd_by_hand(from_correct):
    records = from_correct([2, 4, 9], 10)
    # Mean 50%, deviations −30, −10, 40: (900 + 100 + 1600) / 3.
    assert cv.compute(records) == pytest.approx(2600 / 3)
    assert mcd.compute(records) == pytest.approx(0.7)


def test_cv_and_mcd_ignore_absent_classes_and_class_sizes(make):
    records = make([0] * 10 + [2] * 40, [0] * 2 + [2] * 38 + [0] * 10, "abc")
    assert cv.compute(records) == pytest.approx(((20 - 75) / 2) ** 2)
    assert mcd.compute(records) == pytest.approx(0.55)


def test_tail_rounds_up(from_correct):
    records = from_correct([1, 2, 3, 4, 5, 6], 10)
    assert tail.compute(records) == pytest.approx(0.15)  # ⌈0.2 · 6⌉ = 2 classes
    assert tail.compute(records, k=3) == pytest.approx(0.2)
    assert tail.compute(records, k=1) == pytest.approx(0.1)
    assert tail.compute(records, fraction=1) == pytest.approx(0.35)


def test_tail_is_not_rounded_up_by_floating_point(from_correct):
    records = from_correct(np.arange(100), 100)
    assert tail.compute(records, fraction=0.07) == pytest.approx(np.mean(np.arange(7)) / 100)


def test_tail_counts_only_classes_with_examples(make):
    label, prediction = [0] * 4 + [2] * 4, [0] * 4 + [2, 0, 0, 0]
    assert tail.compute(make(label, prediction, "abc"), k=2) == pytest.approx(0.625)
    with pytest.raises(UserError, match=r"k must lie between 1 and 2.*got 3"):
        tail.compute(make(label, prediction, "abc"), k=3)
    with pytest.raises(UserError, match=r"fraction must lie in \(0, 1\].*got 20"):
        tail.compute(make(label, prediction, "abc"), fraction=20)


def test_vulnerable_is_below_the_overall_accuracy(make):
    # Overall 6 of 12; "even" is exactly there (as 2 of 4) and on neither side, "none" has no example.
    label = [0] * 4 + [1] * 4 + [3] * 4
    prediction = [0, 0, 0, 3, 1, 1, 0, 0, 3, 0, 0, 0]
    split = vulnerable.compute(make(label, prediction, ["good", "even", "none", "bad"]))
    assert split.robust == ("good",)
    assert split.vulnerable == ("bad",)


def test_cvc_by_hand(make):
    probs = np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]])
    values = cvc.compute(make([0, 0, 1], [0, 0, 1], "abc", probs=probs))
    one_hot = ((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 3
    np.testing.assert_allclose(values.values, [one_hot / 2, 1 / 18, np.nan])
    np.testing.assert_array_equal(values.support, [2, 1, 0])
    assert np.isnan(values.low[1])  # one example says nothing of the spread


def test_cvc_interval_is_students(make):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=30)
    values = cvc.compute(make(np.repeat([0, 3], 15), np.zeros(30), "abcd", probs=probs), confidence=0.9)
    spread = probs[15:].var(axis=1)
    expected = stats.t.interval(0.9, 14, loc=spread.mean(), scale=stats.sem(spread))
    np.testing.assert_allclose((values.low[3], values.high[3]), expected)


def test_cvc_without_probabilities_says_what_to_do(make):
    with pytest.raises(UserError, match=r"cvc needs.*records of pgd do not hold them.*Audit again"):
        cvc.compute(make([0], [0], "ab"))
