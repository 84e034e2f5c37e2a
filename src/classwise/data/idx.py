"""IDX files, the format of MNIST and its descendants: two zero bytes, a type, the number of dimensions, the shape."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from classwise.data.download import Remote, damaged, locate
from classwise.data.images import ArrayPixels, Images, check_split

_UINT8 = 0x08
_PREFIX = {"train": "train", "test": "t10k"}
_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def read(path: Path) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes, plain or gzipped; read-only, without a second copy."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error) from error
    if content[:3] != bytes([0, 0, _UINT8]) or len(content) < (start := 4 + 4 * content[3]):
        raise damaged(path, "it does not begin like an IDX file of unsigned bytes")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise damaged(path, f"its header promises the shape {shape}, but {len(content) - start} bytes follow")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def remotes(url: str, *checksums: str) -> dict[str, Remote]:
    """MNIST's four files below an address by name: images and labels of the training split, then of the test split."""
    files = [f"{prefix}-{kind}" for prefix in _PREFIX.values() for kind in _KINDS]
    return {name: Remote(f"{url}{name}.gz", checksum) for name, checksum in zip(files, checksums, strict=True)}


def labelled(
    name: str,
    raw: Path,
    split: str,
    class_names: tuple[str, ...],
    remotes: Mapping[str, Remote],
    download: bool,
) -> Images:
    """The images and labels of a split in MNIST's four-file layout, under the folder `raw`."""
    check_split(name, split, _PREFIX)
    paths, arrays = [], []
    for kind in _KINDS:
        file = f"{_PREFIX[split]}-{kind}"
        paths.append(locate(name, [raw / file, raw / f"{file}.gz"], remotes[file], raw, download))
        arrays.append(read(paths[-1]))
    images, labels = arrays
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise damaged(paths[1], f"it has the shape {labels.shape} where {paths[0].name} has {images.shape}")
    return Images(ArrayPixels(images[:, None]), labels.astype(np.int64), class_names, name)
