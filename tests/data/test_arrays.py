from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.data import arrays
from classwise.data import load as load_data

IMAGES = np.linspace(0, 1, 3 * 4, dtype=np.float16).reshape(3, 1, 2, 2)
LABELS = np.array([1, 0, 1])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "some" / "images.npz"
    arrays.save(path, IMAGES, LABELS, ("cat", "dog"))
    return path


def test_come_back_as_they_were(archive: Path) -> None:
    images = load_data(f"arrays:file={archive}", split="train")
    x, y = images.batch(np.arange(3))
    np.testing.assert_array_equal(x.numpy(), IMAGES.astype(np.float32))
    assert y.tolist() == [1, 0, 1]
    assert images.class_names == ("cat", "dog")


def test_are_found_below_the_root(archive: Path) -> None:
    assert len(load_data("arrays:file=some/images.npz", root=archive.parents[1], split="train")) == 3


def test_serve_one_split_only(archive: Path) -> None:
    with pytest.raises(UserError, match=r"unknown split of .*images\.npz 'test'"):
        load_data(f"arrays:file={archive}")


def test_other_views_apply(archive: Path) -> None:
    assert len(load_data(f"arrays:file={archive},per_class=1", split="train")) == 2


@pytest.mark.parametrize("spec", ["arrays", "arrays:file=nowhere.npz"])
def test_a_missing_archive_is_named(spec: str) -> None:
    with pytest.raises(UserError, match=r"there is no archive .*arrays:file=PATH\.npz"):
        load_data(spec)


def test_a_damaged_archive_is_named(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot read images from"):
        load_data(f"arrays:file={archive}", split="train")
    np.savez(tmp_path / "other.npz", images=IMAGES)
    with pytest.raises(UserError, match="must hold images, labels, class_names and split"):
        load_data(f"arrays:file={tmp_path / 'other.npz'}", split="train")


def test_what_cannot_be_images_is_refused(tmp_path: Path) -> None:
    arrays.save(tmp_path / "flat.npz", np.zeros((3, 4), np.float32), LABELS, ("cat", "dog"))
    with pytest.raises(UserError, match=r"shape \(N, C, H, W\)"):
        load_data(f"arrays:file={tmp_path / 'flat.npz'}", split="train")
