"""confusion, misclassified, symmetry, superclass and confound: who is taken for whom."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from classwise.core.errors import UserError
from classwise.metrics import confound, confusion, misclassified, superclass, symmetry
from classwise.stats.intervals import bounds

COUNTS = np.array([[6, 3, 1, 0], [2, 8, 0, 0], [0, 0, 0, 0], [1, 1, 3, 5]])
NAMES = ("cat", "dog", "car", "ship")
GROUPS = {"animals": ("dog", "cat"), "vehicles": ("car", "ship")}


def test_confusion_agrees_with_sklearn(make):
    rng = np.random.default_rng(0)
    label, prediction = rng.integers(0, 7, (2, 500))
    records = make(label, prediction, "abcdefg")
    np.testing.assert_array_equal(confusion.compute(records), confusion_matrix(label, prediction))
    np.testing.assert_allclose(confusion.rates(records), confusion_matrix(label, prediction, normalize="true"))


def test_confusion_of_an_absent_class_is_a_row_of_nan(from_confusion):
    records = from_confusion(COUNTS)
    np.testing.assert_array_equal(confusion.compute(records), COUNTS)
    rates = confusion.rates(records)
    assert np.isnan(rates[2]).all()
    np.testing.assert_allclose(np.delete(rates, 2, axis=0).sum(axis=1), 1)


def test_prediction_without_a_name_is_an_error(make):
    with pytest.raises(UserError, match="the prediction 2 is outside the class range 0…1"):
        confusion.compute(make([0, 1], [0, 2], "ab"))


def test_misclassified_is_the_confusion_of_the_errors(from_confusion):
    records = from_confusion(COUNTS)
    np.testing.assert_array_equal(misclassified.compute(records), COUNTS - np.diag(np.diag(COUNTS)))
    expected = [[0, 0.75, 0.25, 0], [1, 0, 0, 0], [np.nan] * 4, [0.2, 0.2, 0.6, 0]]
    np.testing.assert_allclose(misclassified.rates(records), expected)


def test_symmetry_of_the_extremes(from_confusion):
    both_ways = [[5, 5, 0], [5, 3, 2], [0, 2, 8]]
    one_way = [[5, 5, 0], [0, 5, 5], [5, 0, 5]]
    assert symmetry.compute(from_confusion(both_ways)) == 1
    assert symmetry.compute(from_confusion(one_way)) == 0
    assert np.isnan(symmetry.compute(from_confusion(np.eye(3, dtype=int))))


def test_symmetry_by_hand_ignores_class_sizes_and_absent_classes(from_confusion):
    # Rates cat→dog .3, dog→cat .2, ship→cat .1, ship→dog .1; car has no example. 2 · min(.3, .2) / .7.
    assert symmetry.compute(from_confusion(COUNTS)) == pytest.approx(0.4 / 0.7)
    assert symmetry.compute(from_confusion(COUNTS * [[1], [5], [1], [3]])) == pytest.approx(0.4 / 0.7)


def test_superclass_by_hand(from_confusion):
    flips = superclass.compute(from_confusion(COUNTS, NAMES, superclasses=GROUPS))
    assert flips.errors == 11
    assert flips.inside == pytest.approx(8 / 11)
    assert flips.across == pytest.approx(3 / 11)
    np.testing.assert_allclose(flips.by_class.values, [3 / 4, 1, np.nan, 3 / 5])
    np.testing.assert_array_equal(flips.by_class.support, [4, 2, 0, 5])
    np.testing.assert_array_equal(flips.by_class.low, bounds(np.array([3, 2, 0, 3]), np.array([4, 2, 0, 5]))[0])


def test_superclass_without_errors_is_nan(from_confusion):
    flips = superclass.compute(from_confusion(np.eye(4, dtype=int), NAMES, superclasses=GROUPS))
    assert flips.errors == 0
    assert np.isnan([flips.inside, flips.across]).all()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "name no superclasses"),
        ({"animals": ("cat", "dog"), "vehicles": ("car",)}, "class 'ship' is in no superclass"),
        ({"animals": ("cat", "dog"), "all": ("cat", "car", "ship")}, "'cat' is listed in two superclasses"),
        ({"animals": ("cat", "dgo"), "vehicles": ("car", "ship")}, "'animals' lists 'dgo', which is not a class"),
    ],
)
def test_superclasses_that_do_not_fit_are_named(from_confusion, groups, message):
    with pytest.raises(UserError, match=message):
        superclass.compute(from_confusion(COUNTS, NAMES, superclasses=groups))


def test_confound_by_hand(from_confusion):
    result = confound.compute(from_confusion(COUNTS, NAMES))
    np.testing.assert_array_equal(result.number, [1, 0, -1, 2])
    np.testing.assert_array_equal(result.count, [3, 2, 0, 3])
    np.testing.assert_allclose(result.share, [3 / 4, 1, np.nan, 3 / 5])
    assert result.names == ["dog", "cat", None, "car"]
    assert result.to_frame()["confused_with"].tolist() == ["dog", "cat", None, "car"]


def test_confound_tie_goes_to_the_first_class(from_confusion):
    assert confound.compute(from_confusion([[0, 2, 2], [1, 0, 1], [0, 0, 4]])).number.tolist() == [1, 0, -1]
