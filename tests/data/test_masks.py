"""Masks: read, written, and made by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.data import masks
from classwise.data.masks import Masks

SOME = np.random.default_rng(0).random((6, 8, 10)) < 0.4


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
    rested = found.convergence_of(index[[5, 0]])
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
