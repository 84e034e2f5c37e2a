"""The data sets made of another one by what is behind its objects: replaced, coloured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from classwise import data
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.data import masks
from classwise.data.coloured import colours_of, drawn
from classwise.data.masks import Masks


@pytest.fixture
def index() -> np.ndarray:
    """Three test images of digits."""
    return load_data("digits").positions[[7, 12, 40]]


@pytest.fixture
def file(tmp_path: Path, index: np.ndarray) -> Path:
    """Their masks, not in their order: the left half."""
    array = np.zeros((3, 8, 8), dtype=bool)
    array[:, :, :4] = True
    masks.write(Masks(array, index[[2, 0, 1]]), tmp_path / "some.npz")
    return tmp_path / "some.npz"


def test_only_images_with_a_mask_are_there_under_their_own_index(file: Path, index: np.ndarray) -> None:
    whole = load_data("digits")
    images = load_data(f"replaced:of=digits,masks={file},colour=grey")
    np.testing.assert_array_equal(images.positions, index)
    np.testing.assert_array_equal(images.labels, whole.labels[[7, 12, 40]])
    x, old = images.batch(np.arange(3))[0], whole.batch(np.array([7, 12, 40]))[0]
    assert torch.equal(x[..., :4], old[..., :4])
    torch.testing.assert_close(x[..., 4:], torch.full((3, 1, 8, 4), 128 / 255))


def test_masks_are_found_below_the_root_and_settings_of_the_data_set_are_kept(file: Path, index: np.ndarray) -> None:
    images = load_data(f"replaced:of=(digits:per_class=50,exclude=[0, 1]),masks={file.name}", root=file.parent)
    assert images.class_names == tuple("23456789")
    labels = load_data("digits").labels[[7, 12, 40]]
    np.testing.assert_array_equal(images.positions, index[labels > 1])


def test_masks_of_nothing_here_are_an_error(tmp_path: Path) -> None:
    masks.write(Masks(np.ones((1, 8, 8), dtype=bool), np.array([100_000])), tmp_path / "far.npz")
    with pytest.raises(UserError, match="has no mask for any of the 355 images of digits"):
        load_data(f"replaced:of=digits,masks={tmp_path / 'far.npz'}")
    with pytest.raises(UserError, match="replaced needs masks"):
        load_data("replaced:of=digits")


def test_coloured_puts_each_images_own_colour_behind_it() -> None:
    images, grey = load_data("coloured:of=digits,colours=both"), load_data("digits")
    colours = list(colours_of(grey.class_names, "both").values())
    place = drawn(grey.labels, grey.positions, [len(own) for own in colours])
    assert set(place.tolist()) == {0, 1}
    row = int(np.flatnonzero((grey.labels == 2) & (place == 0))[0])
    x, old = images.batch(np.array([row]))[0][0], grey.batch(np.array([row]))[0][0, 0]
    torch.testing.assert_close(x, old + (1 - old) * torch.tensor([0.0, 1.0, 0.0])[:, None, None])  # 2 and 3: lime
    assert images.name == "digits on both colours"
    assert data.class_names("coloured:of=digits,colours=both") == grey.class_names
