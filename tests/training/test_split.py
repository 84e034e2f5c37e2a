"""What is held out of training, and what is left out of it."""

from __future__ import annotations

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.training.split import hold_out

LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 0])


def images(labels: np.ndarray = LABELS) -> Images:
    groups = {"pets": ("cat", "dog"), "birds": ("emu",)}
    return Images(
        ArrayPixels(np.zeros((len(labels), 1, 2, 2), np.uint8)),
        labels,
        ("cat", "dog", "emu"),
        "zoo",
        superclasses=groups,
    )


@pytest.mark.parametrize(("which", "held"), [("last", [5, 7, 8, 9, 10, 11]), ("first", [0, 1, 2, 3, 4, 5])])
def test_the_last_or_the_first_of_each_class(which: str, held: list[int]) -> None:
    train, valid = hold_out(images(), 2, which)
    assert valid is not None
    assert sorted(valid.positions) == held
    assert sorted([*train.positions, *valid.positions]) == list(range(12))
    assert np.bincount(valid.labels).tolist() == [2, 2, 2]


def test_random_ones_by_the_seed() -> None:
    found = {}
    for seed in range(4):
        train, valid = hold_out(images(), 2, "random", seed)
        assert valid is not None
        assert np.bincount(valid.labels).tolist() == [2, 2, 2]
        assert not set(train.positions) & set(valid.positions)
        again = hold_out(images(), 2, "random", seed)[1]
        assert again is not None
        assert again.positions.tolist() == valid.positions.tolist()
        found[tuple(valid.positions)] = seed
    assert len(found) > 1


def test_nothing_held_out() -> None:
    whole = images()
    assert hold_out(whole, 0) == (whole, None)


@pytest.mark.parametrize(("count", "first"), [(3, "'emu' to train on: zoo has 3"), (7, "'cat' to train on: zoo has 5")])
def test_a_class_with_nothing_left_to_train_on_is_an_error(count: int, first: str) -> None:
    with pytest.raises(UserError, match=rf"data.validation = {count} would leave no {first}"):
        hold_out(images(), count)


def test_without_a_class_the_others_are_renumbered() -> None:
    left = images().without(["dog"])
    assert left.class_names == ("cat", "emu")
    assert left.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]
    assert left.positions.tolist() == [0, 2, 3, 5, 6, 8, 9, 11]  # of the whole, so random numbers stay theirs
    assert left.superclasses == {"pets": ("cat",), "birds": ("emu",)}
    assert images().without(["emu"]).superclasses == {"pets": ("cat", "dog")}


def test_without_anything_is_the_whole() -> None:
    whole = images()
    assert whole.without(()) is whole


def test_at_least_two_classes_must_be_left() -> None:
    with pytest.raises(UserError, match=r"exclude leaves 1 of 3 classes"):
        images().without(["cat", 1])
    with pytest.raises(UserError, match=r"unknown class of zoo 'cta'; did you mean 'cat'"):
        images().without(["cta"])
