"""Masks: read, written, made by GrabCut and by chance, and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from classwise.core.errors import UserError
from classwise.data import masks, segmentation
from classwise.data.images import ArrayPixels, Images
from classwise.data.mask_quality import by_class, measure, sheet, usable
from classwise.data.masks import Masks
from classwise.show.figures import panels

SOME = np.random.default_rng(0).random((6, 8, 10)) < 0.4


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


@pytest.mark.parametrize("kind", ["npy", "bytes", "npz", "written", "folder"])
def test_every_form_of_masks_is_read(tmp_path: Path, kind: str) -> None:
    index = np.arange(6) if kind in ("npy", "bytes") else np.array([5, 3, 9, 0, 12, 7])
    path = tmp_path / f"m.{kind if kind in ('npy', 'npz') else 'npy' if kind == 'bytes' else 'npz'}"
    if kind in ("npy", "bytes"):
        np.save(path, SOME if kind == "npy" else SOME.astype(np.uint8) * 255)
    elif kind == "npz":
        np.savez(path, masks=SOME, index=index)
    elif kind == "written":
        masks.write(Masks(SOME, index, np.array([True] * 5 + [False])), path)
    else:
        path = tmp_path / "folder"
        path.mkdir()
        for number, mask in zip(index, SOME, strict=True):
            Image.fromarray(mask.astype(np.uint8) * 255).save(path / f"{number:05d}.png")
    found = masks.read(path)
    assert len(found) == 6
    np.testing.assert_array_equal(found.of(index), SOME)
    np.testing.assert_array_equal(found.of(index[[4, 1]]), SOME[[4, 1]])
    rested = found.came_to_rest(index[[5, 0]])
    assert rested is None if kind != "written" else rested.tolist() == [False, True]


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (SOME[0], r"has the shape \(8, 10\); masks are N×H×W"),
        (SOME[:0], r"has the shape \(0, 8, 10\)"),
        (SOME * 0.5, "holds float64 from 0.0 to 0.5; masks are true and false"),
        (SOME.astype(np.uint8) * 3, "holds uint8 from 0 to 3"),
    ],
)
def test_arrays_that_are_no_masks_are_named(tmp_path: Path, array: np.ndarray, why: str) -> None:
    np.save(tmp_path / "m.npy", array)
    with pytest.raises(UserError, match=rf"m\.npy {why}"):
        masks.read(tmp_path / "m.npy")


def test_files_that_hold_no_masks_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.npy"):
        masks.read(tmp_path / "nowhere.npy")
    with pytest.raises(UserError, match=r"m\.txt: give a \.npy or \.npz file, or a folder"):
        masks.read(tmp_path / "m.txt")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(UserError, match=r"cannot read the masks of .*cut\.npz"):
        masks.read(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", mask=SOME)
    with pytest.raises(UserError, match="holds mask; masks must be stored under the name masks"):
        masks.read(tmp_path / "other.npz")
    with pytest.raises(UserError, match=r"there is no \.png in"):
        masks.read(tmp_path)
    with pytest.raises(UserError, match=r"written as \.npz, got .*m\.npy"):
        masks.write(Masks(SOME), tmp_path / "m.npy")


def test_a_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    Image.new("L", (4, 5)).save(tmp_path / "2.png")
    with pytest.raises(UserError, match=r"differ in size: .*2\.png"):
        masks.read(tmp_path)
    (tmp_path / "2.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"cannot read the mask .*2\.png"):
        masks.read(tmp_path)
    (tmp_path / "2.png").rename(tmp_path / "two.png")
    with pytest.raises(UserError, match=r"two\.png is not named after an example"):
        masks.read(tmp_path)


def test_indices_are_one_each() -> None:
    with pytest.raises(UserError, match="6 masks but 2 indices"):
        Masks(SOME, np.array([0, 1]))
    with pytest.raises(UserError, match="2 masks for example 4"):
        Masks(SOME, np.array([0, 1, 4, 2, 4, 3]))
    with pytest.raises(UserError, match=r"no mask for example 6 \(1 of 2 missing; it has 6, for 0…5\)"):
        Masks(SOME).of(np.array([1, 6]))


def test_blobs_have_the_area_of_the_mask_and_belong_to_the_example() -> None:
    real = Masks(SOME, np.arange(6) * 10)
    blobs = masks.blobs(real)
    np.testing.assert_array_equal(blobs.array.sum((1, 2)), SOME.sum((1, 2)))
    assert (blobs.array != SOME).any((1, 2)).all()
    part = masks.blobs(Masks(SOME[[4]], np.array([40])))
    np.testing.assert_array_equal(part.array[0], blobs.array[4])
    assert (masks.blobs(real, seed=1).array != blobs.array).any()
    with pytest.raises(UserError, match="smoothness must be more than 0, got 0"):
        masks.blobs(real, smoothness=0)


def test_blobs_are_smooth() -> None:
    half = Masks(np.arange(32 * 32).reshape(1, 32, 32).repeat(20, 0) % 2 == 0)
    turns = np.diff(masks.blobs(half).array, axis=2).sum((1, 2)) / 32
    assert turns.mean() < 3  # changes of side along a row; independent pixels would change 15 times
    assert np.diff(masks.blobs(half, smoothness=1 / 100).array, axis=2).sum((1, 2)).mean() / 32 > 10


def test_shuffled_masks_are_those_of_other_examples() -> None:
    array = np.eye(12, dtype=bool)[:, None].repeat(2, 1)  # mask k has column k alone
    given = masks.shuffled(Masks(array, np.arange(12) + 100)).array[:, 0].argmax(1)
    assert sorted(given) == list(range(12))
    assert (given != np.arange(12)).all()
    assert (given != masks.shuffled(Masks(array), seed=1).array[:, 0].argmax(1)).any()
    turned = masks.shuffled(Masks(array[::-1], np.arange(12)[::-1] + 100))  # the order they come in does not matter
    np.testing.assert_array_equal(turned.of(np.arange(12) + 100)[:, 0].argmax(1), given)
    with pytest.raises(UserError, match="shuffling takes two or more"):
        masks.shuffled(Masks(SOME[:1]))


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


def test_the_sheet_is_what_panels_draws() -> None:
    images, true = discs(3)
    table = sheet(images, Masks(true), np.array([2, 0]), ("white", "mean"))
    assert table["row"].unique().tolist() == ["cat 2", "cat 0"]
    assert table["column"].tolist() == ["image", "mask", "white", "mean"] * 2
    assert (table["image"][2][~true[2]] == 1).all()
    np.testing.assert_array_equal(table["image"][5], true[0])
    assert panels.draw(table).to_dict()
