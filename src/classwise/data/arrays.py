"""Arrays: images and labels of one NumPy archive, such as `features` builds (`file`); no download.

The archive (.npz) holds ``images`` (N, C, H, W), 8-bit or floating point in [0,1], ``labels``, ``class_names``, and in
``split`` the name of the only split it serves, so that nobody trains on what they audit by mistake.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.core.storage import atomic_write
from classwise.data.images import ArrayPixels, Images, IntArray, check_split
from classwise.data.tensors import from_user

PAPERS = ()  # ours, or common knowledge


def load_archive(path: str | Path) -> Any:
    """A NumPy archive, opened; a single array, or what is neither, is a ValueError."""
    content = np.load(path, allow_pickle=False)
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise ValueError("it holds a single array (.npy), not an archive (.npz)")
    return content


def load(root: str | Path, split: str = "test", download: bool = False, file: str = "") -> Images:
    """The images of an archive, in memory. `file` is its path, as it is or below `root`."""
    path = next((p for p in (Path(file), Path(root) / file) if file and p.is_file()), None)
    if path is None:
        raise UserError(f"arrays: there is no archive {file!r}. Give its path: arrays:file=PATH.npz.")
    try:
        with load_archive(path) as content:
            images, labels = content["images"], content["labels"]
            names, own = [str(name) for name in content["class_names"]], str(content["split"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"cannot read images from {path}: {error}. It must hold images, labels, class_names and split."
        ) from error
    check_split(str(path), split, [own])
    read = from_user((images, labels), class_names=names)
    return Images(ArrayPixels(images), read.labels, read.class_names, f"arrays:file={path}")


def save(path: Path, images: Array, labels: IntArray, class_names: tuple[str, ...], split: str = "train") -> None:
    """Write an archive that `load` reads, whole or not at all."""
    with atomic_write(path) as handle:
        np.savez(handle, images=images, labels=labels, class_names=np.array(class_names), split=np.array(split))
