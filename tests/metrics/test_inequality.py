"""gini, normalised_gini, nsd, rdi, harmonic, penalised_average and false_positive_share, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.metrics import (
    accuracy,
    average,
    false_positive_share,
    find,
    gini,
    harmonic,
    mcd,
    normalised_gini,
    nsd,
    penalised_average,
    rdi,
)
from classwise.stats import intervals


def test_gini_by_hand(from_correct):
    records = from_correct([2, 4, 9], 10)
    # |2−4| + |2−9| + |4−9| = 14 tenths, each pair twice, over 2 · 9 · 0.5.
    assert gini.compute(records) == pytest.approx(2 * 1.4 / (2 * 9 * 0.5))
    assert normalised_gini.compute(records) == pytest.approx(1.5 * 2.8 / 9)


def test_gini_reaches_its_ends():
    only_one = np.array([0.6, 0, 0, 0])
    assert gini.of(only_one) == pytest.approx(0.75)
    assert normalised_gini.of(only_one) == pytest.approx(1)
    assert gini.of(np.full(4, 0.3)) == normalised_gini.of(np.full(4, 0.3)) == 0


def test_gini_is_that_of_the_lorenz_curve():
    a = np.sort(np.random.default_rng(0).random(11))
    lorenz = np.concatenate([[0], a.cumsum() / a.sum()])
    assert gini.of(a) == pytest.approx(1 - (lorenz[1:] + lorenz[:-1]).sum() / len(a))


def test_nsd_by_hand(from_correct):
    # Mean 0.5, deviations −0.3, −0.1, 0.4.
    assert nsd.compute(from_correct([2, 4, 9], 10)) == pytest.approx(math.sqrt(0.26 / 3) / 0.5)


def test_shares_of_nothing_are_not_defined(from_correct):
    records = from_correct([0, 0], 5)
    assert math.isnan(gini.compute(records))
    assert math.isnan(normalised_gini.compute(records))
    assert math.isnan(nsd.compute(records))
    assert math.isnan(normalised_gini.of(np.array([0.5])))


def test_rdi_is_the_discrepancy(from_correct):
    records = from_correct([2, 4, 9], 10)
    assert rdi.compute(records) == pytest.approx(0.7)
    assert find("rdi").estimate(records, 0.9) == mcd.estimate(records, 0.9)


def test_harmonic_by_hand(from_correct):
    assert harmonic.compute(from_correct([2, 4, 8], 10)) == pytest.approx(3 / (5 + 2.5 + 1.25))
    assert harmonic.compute(from_correct([0, 4, 8], 10)) == 0


def test_harmonic_interval_is_that_of_the_simultaneous_ends(from_correct):
    records = from_correct([20, 40, 80], 100)
    value, low, high = find("harmonic").estimate(records, 0.9)
    found = accuracy.compute(records, confidence=0.9 ** (1 / 3))
    assert value == pytest.approx(harmonic.compute(records))
    assert (low, high) == pytest.approx((3 / (1 / found.low).sum(), 3 / (1 / found.high).sum()))


def test_penalised_average_by_hand(from_correct):
    records = from_correct([2, 4, 9], 10)
    assert penalised_average.compute(records) == pytest.approx(0.5 - 0.5 * 0.7)
    assert penalised_average.compute(records, penalty=1) == pytest.approx(-0.2)
    assert penalised_average.compute(records, penalty=0) == average.compute(records)
    assert find("penalised_average").written(records) == "15.0"
    with pytest.raises(UserError, match=r"penalty must be at least 0.*got -1"):
        penalised_average.compute(records, penalty=-1)


def test_penalised_average_interval_joins_both_at_half_the_error(from_correct):
    records = from_correct([20, 40, 90], 100)
    value, low, high = find("penalised_average").estimate(records, 0.9)
    mean, (_, least, most) = average.estimate(records, 0.95), mcd.estimate(records, 0.95)
    assert (low, high) == pytest.approx((mean.low - most / 2, mean.high - least / 2))
    assert low < value == penalised_average.compute(records) < high


def test_false_positive_share_by_hand(from_confusion):
    records = from_confusion([[5, 3, 0], [1, 4, 0], [2, 2, 0]])
    found = false_positive_share.compute(records, confidence=0.9)
    np.testing.assert_allclose(found.values, [3 / 8, 5 / 8, 0])
    np.testing.assert_array_equal(found.support, 8)
    low, high = intervals.bounds(np.array([3, 5, 0]), np.array(8), 0.9)
    np.testing.assert_allclose([found.low, found.high], [low, high])


def test_predictions_may_go_to_a_class_without_examples(make):
    found = false_positive_share.compute(make([0, 0, 0, 1], [1, 2, 2, 1], "abc"))
    np.testing.assert_allclose(found.values, [0, 1 / 3, 2 / 3])


def test_without_errors_no_share_is_defined(make):
    found = false_positive_share.compute(make([0, 1], [0, 1], "ab"))
    assert np.isnan(found.values).all()
    np.testing.assert_array_equal(found.support, 0)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("false_positive_share", "gives a PerClass, not one number"),
        ("confusion", "gives a ndarray, not one number"),
        ("rho", "compares two runs"),
    ],
)
def test_only_a_metric_of_one_number_is_shown_beside_others(name, what, from_correct):
    with pytest.raises(UserError, match=f"the metric {name} {what}, so it cannot be shown here"):
        find(name).written(from_correct([2, 4], 10))
