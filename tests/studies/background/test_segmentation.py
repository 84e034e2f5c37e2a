"""Masks made by GrabCut, and measured."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from classwise.core.errors import UserError
from classwise.data import masks
from classwise.data.images import ArrayPixels, Images
from classwise.data.masks import Masks
from classwise.studies.background import segmentation
from classwise.studies.background.mask_quality import by_class, measure, usable


def disc(side: int, row: float, column: float, radius: float) -> np.ndarray:
    y, x = np.mgrid[:side, :side]
    return (y - row) ** 2 + (x - column) ** 2 <= radius**2


def discs(count: int = 6, side: int = 32) -> tuple[Images, np.ndarray]:
    """Reddish discs on a green and blue texture, and where they are."""
    draw = np.random.default_rng(3)
    true = np.stack(
        [disc(side, *draw.uniform(0.4, 0.6, 2) * side, draw.uniform(0.2, 0.3) * side) for _ in range(count)]
    )
    texture = ndimage.gaussian_filter(draw.normal(size=(count, 1, side, side)), (0, 0, 1.5, 1.5)) * 0.6
    ground = np.array([0.3, 0.5, 0.5])[None, :, None, None] + texture
    front = np.array([0.75, 0.35, 0.3])[None, :, None, None] + draw.normal(size=(count, 3, side, side)) * 0.05
    pixels = np.where(true[:, None], front, ground).clip(0, 1).astype(np.float32)
    return Images(ArrayPixels(pixels), np.arange(count) % 2, ("cat", "dog", "owl"), "discs"), true


def test_grabcut_finds_a_disc_on_a_texture() -> None:
    images, true = discs()
    found = segmentation.grabcut(images)
    overlap = (found.array & true).sum((1, 2)) / (found.array | true).sum((1, 2))
    assert overlap.min() > 0.9
    assert found.converged is not None
    assert found.converged.all()


def test_grabcut_gives_an_image_its_mask_whatever_it_is_read_with() -> None:
    images, _ = discs()
    whole = segmentation.grabcut(images)
    part = segmentation.grabcut(images.take(np.array([5, 2])))
    np.testing.assert_array_equal(part.of(np.array([2, 5])), whole.of(np.array([2, 5])))
    assert part.positions.tolist() == [5, 2]


def test_grabcut_keeps_to_its_rectangle_and_stops_when_told() -> None:
    images, _ = discs(2)
    found = segmentation.grabcut(images, margin=1 / 4, gamma=1e-6, steps=1)
    assert not found.array[:, :8].any()
    assert not found.array[:, :, 24:].any()
    assert found.array.any((1, 2)).all()
    assert found.converged is not None
    assert not found.converged.any()


def test_a_boundary_too_dear_leaves_nothing() -> None:
    noise = np.random.default_rng(0).random((1, 3, 16, 16), dtype=np.float32)
    images = Images(ArrayPixels(noise), np.array([0]), ("cat",))
    assert segmentation.grabcut(images, gamma=0.01).array.any()
    assert not segmentation.grabcut(images, gamma=1000).array.any()


@pytest.mark.parametrize("channels", [1, 3])
def test_grabcut_takes_flat_and_grey_images(channels: int) -> None:
    flat = Images(ArrayPixels(np.full((1, channels, 12, 9), 7, np.uint8)), np.array([0]), ("cat",))
    assert segmentation.grabcut(flat).array.shape == (1, 12, 9)
    square = np.zeros((1, channels, 16, 16), np.uint8)
    square[:, :, 4:12, 4:12] = 200
    found = segmentation.grabcut(Images(ArrayPixels(square), np.array([0]), ("cat",))).array[0]
    np.testing.assert_array_equal(found, square[0, 0] > 0)


def test_settings_of_grabcut_that_cannot_be_are_named() -> None:
    images, _ = discs(1)
    with pytest.raises(UserError, match=r"margin must be more than 0 and less than 0\.5 of the side, got 0\.5"):
        segmentation.grabcut(images, margin=0.5)
    with pytest.raises(UserError, match="got gamma=0, steps=20"):
        segmentation.grabcut(images, gamma=0)
    tiny = Images(ArrayPixels(np.zeros((1, 3, 2, 2), np.uint8)), np.array([0]), ("cat",))
    with pytest.raises(UserError, match="2×2 pixels are too small for GrabCut"):
        segmentation.grabcut(tiny)


def hand_made() -> tuple[Images, Masks]:
    """A step from black to white between columns 3 and 4, and five masks of it."""
    pixels = np.zeros((5, 1, 8, 8), np.float32)
    pixels[..., 4:] = 1
    array = np.zeros((5, 8, 8), dtype=bool)
    array[0, :, 4:] = True  # exactly the step
    array[1, 1:3, 1] = array[1, 5:7, 2] = True  # two parts, off the step and off the border
    array[3, 4, 5] = True  # one pixel
    array[4] = True
    return Images(ArrayPixels(pixels), np.array([0, 0, 1, 1, 0]), ("cat", "dog", "owl")), Masks(array)


def test_measures_of_masks_made_by_hand() -> None:
    table = measure(*hand_made())
    assert table["share"].tolist() == [0.5, 4 / 64, 0, 1 / 64, 1]
    assert table["components"].tolist() == [1, 2, 0, 1, 1]
    assert table["border"].tolist() == [True, False, False, False, True]
    assert table["refused"].tolist() == ["", "", "empty", "too small", "too large"]
    # The gradient is 1/2 in columns 3 and 4, nothing elsewhere: 1/8 on average. The outline of mask 0 is both columns.
    assert table["edge"][0] == pytest.approx(4)
    # Mask 1 and its neighbours: 8 and 8 pixels of columns 0 to 2, and two of column 3.
    assert table["edge"][1] == pytest.approx((2 * 0.5 / 16) / 0.125)
    assert table["edge"][[2, 4]].isna().all()  # neither has an outline
    assert table["converged"].isna().all()
    assert usable(table).tolist() == [0, 1]


def test_the_bounds_of_what_is_refused_can_be_moved() -> None:
    assert usable(measure(*hand_made(), smallest=0.01, largest=1)).tolist() == [0, 1, 3, 4]
    with pytest.raises(UserError, match=r"smallest < largest, got 0\.5 and 0\.5"):
        measure(*hand_made(), smallest=0.5, largest=0.5)


def test_the_table_by_class_keeps_a_class_without_images() -> None:
    images, made = hand_made()
    known = Masks(made.array, converged=np.array([True, False, True, True, True]))
    table = by_class(measure(images, known), images.class_names).set_index("class")
    assert table["images"].tolist() == [3, 2, 0]
    assert table.loc["cat", ["share", "components", "border"]].tolist() == pytest.approx([0.5, 1, 2 / 3])
    assert table.loc["cat", ["converged", "too large", "refused"]].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert table.loc["dog", ["empty", "too small", "refused"]].tolist() == [0.5, 0.5, 1]
    assert table.loc["owl"].drop("images").isna().all()


def test_a_mask_that_follows_contours_is_told_from_chance() -> None:
    images, true = discs()
    real = Masks(true)
    assert measure(images, real)["edge"].min() > 1.5
    assert measure(images, masks.blobs(real))["edge"].mean() < 1.25
