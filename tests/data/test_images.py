"""`Images`: batches in [0,1], and selections that keep indices and the class list."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.data.tensors import from_user


def made(labels: list[int], class_names: tuple[str, ...] = ("ant", "bee", "cow")) -> Images:
    array = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    return Images(ArrayPixels(array), np.asarray(labels), class_names)


def test_bytes_become_floats_only_in_the_batch() -> None:
    images = made([0, 1, 2])
    x, y = images.batch(np.array([2, 0]))
    assert x.dtype == torch.float32
    torch.testing.assert_close(x.flatten(), torch.tensor([2 / 255, 0.0]))
    assert y.tolist() == [2, 0]
    assert isinstance(images.pixels, ArrayPixels)
    assert images.pixels.array.dtype == np.uint8


def test_a_selection_keeps_its_indices_and_classes() -> None:
    images = made([0, 1, 0, 1]).subset(classes=["bee"]).take(np.array([1]))
    assert images.positions.tolist() == [3]
    assert images.class_names == ("ant", "bee", "cow")
    assert images.batch(np.array([0]))[0].item() == pytest.approx(3 / 255)


def test_per_class_takes_what_a_small_class_has() -> None:
    images = made([0] * 5 + [1] * 2).subset(per_class=3)
    assert np.bincount(images.labels, minlength=3).tolist() == [3, 2, 0]
    assert (np.diff(images.positions) > 0).all()


def test_a_limited_selection_is_drawn_by_its_seed() -> None:
    images = made([0] * 50 + [1] * 50)
    picks = [images.subset(limit=10, seed=seed).positions.tolist() for seed in (0, 0, 1)]
    assert picks[0] == picks[1] != picks[2]
    assert set(images.subset(limit=20).labels) == {0, 1}


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(UserError, match="label 3 in data is outside the class range 0…2"):
        made([0, 3])
    with pytest.raises(UserError, match="2 images but 1 labels"):
        Images(ArrayPixels(np.zeros((2, 1, 1, 1), np.uint8)), np.array([0]), ("ant",))
    with pytest.raises(UserError, match="did you mean 'bee'"):
        made([0]).subset(classes=["bees"])
    with pytest.raises(UserError, match="is empty"):
        made([0]).subset(classes=["cow"])
    with pytest.raises(UserError, match="per_class must be at least 1, got 0"):
        made([0]).subset(per_class=0)


def test_every_class_has_a_name_of_its_own() -> None:
    with pytest.raises(UserError, match=r"'bee' is the name of class 1 and of class 2 of data\..*rename one"):
        made([0, 1, 2], ("ant", "bee", "bee"))
    with pytest.raises(UserError, match="'ant' is the name of class 0 and of class 1"):
        from_user((torch.rand(2, 1, 2, 2), torch.tensor([0, 1])), class_names=["ant", "ant"])


@pytest.mark.parametrize("character", ["\0", "\x07", "\x1b", "\r", "\n", "\t", "\x85", "\ud800", "\uffff"])
def test_names_hold_no_control_characters(character: str) -> None:
    with pytest.raises(
        UserError, match=rf"name of class 1 of data, .* holds the control character U\+{ord(character):04X}"
    ):
        made([0, 1], ("ant", f"be{character}e"))


def test_names_may_be_of_any_script() -> None:
    assert made([0, 1, 2], ("猫", "=cmd", "a\u200db 🐈")).class_names == ("猫", "=cmd", "a\u200db 🐈")
