"""MNIST and Fashion-MNIST: IDX files, plain and gzipped, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.data import fashion_mnist, idx, mnist

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([7, 0, 9], dtype=np.uint8)


def encoded(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(raw: Path, prefix: str = "t10k", zipped: bool = False) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
        content = encoded(array)
        name = f"{prefix}-{kind}-ubyte" + (".gz" if zipped else "")
        (raw / name).write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("module", "folder"), [(mnist, "MNIST"), (fashion_mnist, "FashionMNIST")])
@pytest.mark.parametrize(("split", "prefix"), [("test", "t10k"), ("train", "train")])
def test_reads_torchvision_layout(
    tmp_path: Path, module: ModuleType, folder: str, split: str, prefix: str, zipped: bool
) -> None:
    write(tmp_path / folder / "raw", prefix, zipped)
    images = module.load(tmp_path, split)
    assert images.labels.tolist() == [7, 0, 9]
    assert images.pixels.array.dtype == np.uint8
    x, _ = images.batch(np.array([2]))
    assert x.shape == (1, 1, 4, 5)
    np.testing.assert_allclose(x[0, 0].numpy() * 255, IMAGES[2], atol=1e-4)


def test_every_file_has_a_checksummed_source() -> None:
    for module in (mnist, fashion_mnist):
        assert len(module.REMOTES) == 4
        for file, remote in module.REMOTES.items():
            assert remote.file_name == f"{file}.gz"
            assert len(remote.checksum) == len("md5:") + 32


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin like an IDX file"),
        (b"<html>not found</html>", "does not begin like an IDX file"),
        (encoded(IMAGES)[:7], "does not begin like an IDX file"),
        (encoded(IMAGES)[:-1], r"promises the shape \(3, 4, 5\), but 59 bytes follow"),
        (encoded(IMAGES) + b"\0", "but 61 bytes follow"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"t10k-images-idx3-ubyte is damaged: .*{why}.*Delete it and download"):
        idx.read(path)


def test_a_cut_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(encoded(IMAGES))[:-12])
    with pytest.raises(UserError, match=r"labels.gz is damaged"):
        idx.read(path)


def test_labels_of_another_split_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write(raw)
    (raw / "t10k-labels-idx1-ubyte").write_bytes(encoded(LABELS[:2]))
    with pytest.raises(UserError, match=r"labels-idx1-ubyte is damaged: it has the shape \(2,\)"):
        mnist.load(tmp_path)
