"""SVHN's MATLAB files and STL-10's binary ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from classwise.core.errors import UserError
from classwise.data import stl10, svhn


def svhn_arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return images, np.array([10, 1, 9][:count], dtype=np.uint8).reshape(-1, 1)


@pytest.mark.parametrize("folder", ["", "svhn"])
@pytest.mark.parametrize("split", ["train", "test", "extra"])
def test_svhn(tmp_path: Path, folder: str, split: str) -> None:
    images, labels = svhn_arrays(3)
    path = tmp_path / folder / f"{split}_32x32.mat"
    path.parent.mkdir(exist_ok=True)
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels})
    loaded = svhn.load(tmp_path, split)
    assert loaded.labels.tolist() == [0, 1, 9], "the digit 0, written as 10, is class 0"
    assert loaded.pixels.array.dtype == np.uint8
    x, _ = loaded.batch(np.array([2, 0]))
    np.testing.assert_allclose(x.numpy() * 255, images[[2, 0]], atol=1e-4)
    assert x.is_contiguous()


def test_svhn_damaged(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    images, labels = svhn_arrays(3)
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match=r"test_32x32.mat is damaged: .*Delete it"):
        svhn.load(tmp_path)
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels[:2]})
    with pytest.raises(UserError, match=r"test_32x32.mat is damaged: it does not hold images X"):
        svhn.load(tmp_path)


def write_stl10(root: Path, images: np.ndarray, labels: list[int], split: str = "test") -> None:
    folder = root / "stl10_binary"
    folder.mkdir(exist_ok=True)
    images.swapaxes(2, 3).tofile(folder / f"{split}_X.bin")
    np.array(labels, dtype=np.uint8).tofile(folder / f"{split}_y.bin")


@pytest.mark.parametrize("split", ["train", "test"])
def test_stl10(tmp_path: Path, split: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 96, 96), dtype=np.uint8)
    write_stl10(tmp_path, images, [1, 10], split)
    loaded = stl10.load(tmp_path, split)
    assert [loaded.class_names[label] for label in loaded.labels] == ["airplane", "truck"]
    x, _ = loaded.batch(np.array([1, 0]))
    np.testing.assert_allclose(x.numpy() * 255, images[[1, 0]], atol=1e-4)


def test_stl10_superclasses_have_the_published_numbers() -> None:
    numbers = {
        group: {stl10.CLASS_NAMES.index(name) for name in members} for group, members in stl10.SUPERCLASSES.items()
    }
    assert numbers == {"transportation": {0, 2, 8, 9}, "animals": {1, 3, 4, 5, 6, 7}}


def test_stl10_cut(tmp_path: Path) -> None:
    write_stl10(tmp_path, np.zeros((2, 3, 96, 96), np.uint8), [1, 2, 3])
    with pytest.raises(UserError, match=r"test_X.bin is damaged: its 55296 bytes .* each of 3 labels"):
        stl10.load(tmp_path)
