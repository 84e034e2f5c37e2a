"""The released CIFAR-10-C and CIFAR-100-C files: one array per corruption, the severities one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classwise.data.corruptions import SEVERITIES, check
from classwise.data.download import Remote, damaged, locate
from classwise.data.images import ArrayPixels, Images


def load(name: str, clean: Any, folder: Path, archive: Remote, download: bool, kind: str, severity: int) -> Images:
    """The test images of the data set `clean` under one corruption at one severity, from ``folder/<kind>.npy``.

    The archive holds the test set at each severity in turn, so an example has the index it has in the clean test set.
    """
    check(kind, severity)
    path, answers = (
        locate(name, [folder / f"{file}.npy"], archive, folder.parent, download) for file in (kind, "labels")
    )
    array, labels = _mapped(path), _mapped(answers)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or len(array) % len(SEVERITIES):
        raise damaged(path, f"{array.dtype} of shape {array.shape} is not a colour test set at five severities")
    if labels.shape != array.shape[:1]:
        raise damaged(answers, f"its shape is {labels.shape}, where {len(array)} labels were expected")
    count = len(array) // len(SEVERITIES)
    part = slice((severity - 1) * count, severity * count)
    pixels, described = ArrayPixels(array[part].transpose(0, 3, 1, 2)), f"{name}:kind={kind},severity={severity}"
    return Images(pixels, labels[part], clean.CLASS_NAMES, described, superclasses=clean.SUPERCLASSES)


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, error) from error
    return array
