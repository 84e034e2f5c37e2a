from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score
from statsmodels.stats.proportion import proportion_confint

from classwise.core.errors import UserError
from classwise.metrics import accuracy, average, overall
from classwise.stats import intervals

NAMES = ("cat", "dog", "ship")


@pytest.fixture
def labels():
    rng = np.random.default_rng(3)
    label = rng.choice(4, size=300, p=[0.5, 0.3, 0.15, 0.05])
    return label, np.where(rng.random(300) < 0.6, label, rng.integers(0, 4, 300))


def test_agrees_with_sklearn(make, labels):
    label, prediction = labels
    records = make(label, prediction, "abcd")
    np.testing.assert_allclose(accuracy.compute(records).values, recall_score(label, prediction, average=None))
    assert average.compute(records) == pytest.approx(balanced_accuracy_score(label, prediction))
    assert overall.compute(records).value == pytest.approx(accuracy_score(label, prediction))


def test_absent_class_is_nan_with_support_zero(make):
    values = accuracy.compute(make([0, 0, 2, 2], [0, 1, 2, 2], NAMES))
    np.testing.assert_array_equal(values.values, [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(values.support, [2, 0, 2])
    assert np.isnan(values.low[1])
    assert np.isnan(values.high[1])
    assert NAMES[values.worst] == "cat"


def test_average_weighs_classes_equally_and_overall_does_not(make):
    records = make([0] * 8 + [2] * 2, [0] * 8 + [0, 2], NAMES)
    assert average.compute(records) == 0.75
    assert overall.compute(records).value == 0.9


def test_intervals_by_name_and_confidence(from_correct):
    records = from_correct([30, 45], 50)
    for interval in ("wilson", "exact"):
        values = accuracy.compute(records, interval=interval, confidence=0.8)
        low, high = intervals.bounds(np.array([30, 45]), np.array([50, 50]), 0.8, interval)
        np.testing.assert_array_equal((values.low, values.high), (low, high))


def test_simultaneous_counts_only_classes_with_examples(make):
    label, prediction = [0] * 40 + [2] * 40, [0] * 30 + [2] * 50
    together = accuracy.compute(make(label, prediction, NAMES), simultaneous=True)
    alone = accuracy.compute(make(label, prediction, NAMES), confidence=0.95**0.5)
    np.testing.assert_allclose(together.low, alone.low)
    np.testing.assert_allclose(together.high, alone.high)


def test_simultaneous_intervals_hold_together():
    rng = np.random.default_rng(0)
    p, support = np.full(10, 0.4), np.full(10, 200)
    correct = rng.binomial(support, p, size=(2000, 10))
    held = {}
    for name, confidence in {"each": 0.95, "all": intervals.sidak(0.95, 10)}.items():
        low, high = intervals.bounds(correct, support, confidence, "exact")
        held[name] = ((low <= p) & (p <= high)).all(axis=1).mean()
    assert held["all"] >= 0.95
    assert held["each"] < 0.8


def test_overall_interval(from_correct):
    estimate = overall.compute(from_correct([30, 45], 50), interval="exact", confidence=0.9)
    low, high = intervals.bounds(np.array(75), np.array(100), 0.9, "exact")
    assert (estimate.value, estimate.low, estimate.high, estimate.support) == (0.75, low, high, 100)


def test_label_without_a_name_is_an_error(make):
    with pytest.raises(UserError, match=r"the label 3 is outside the class range 0…2"):
        accuracy.compute(make([0, 3], [0, 0], NAMES))


def test_average_has_the_mover_interval(from_confusion):
    found = average.estimate(from_confusion([[8, 2], [30, 70]]))
    (low_a, high_a), (low_b, high_b) = (proportion_confint(k, n, method="wilson") for k, n in ((8, 10), (70, 100)))
    assert found.value == pytest.approx(0.75)
    assert found.low == pytest.approx(0.75 - np.hypot(0.8 - low_a, 0.7 - low_b) / 2)
    assert found.high == pytest.approx(0.75 + np.hypot(high_a - 0.8, high_b - 0.7) / 2)
    assert found.support == 110


def test_average_interval_leaves_out_a_class_without_examples(from_confusion):
    with_one, without = from_confusion([[8, 2, 0], [30, 70, 0], [0, 0, 0]]), from_confusion([[8, 2], [30, 70]])
    assert average.estimate(with_one) == average.estimate(without)


def test_average_interval_covers_the_truth(from_correct):
    rng, truth, support = np.random.default_rng(0), np.array([0.1, 0.5, 0.95]), np.array([20, 40, 80])
    found = [average.estimate(from_correct(rng.binomial(support, truth), support)) for _ in range(300)]
    inside = np.mean([one.low <= truth.mean() <= one.high for one in found])
    assert inside == pytest.approx(0.95, abs=0.035)
