"""CIFAR's pickled batches, read without trusting them.

A pickle may name any function and have it called. The unpickler here knows only the few that rebuild an array, by
a table rather than by import, so a doctored file is refused before anything of it runs.
"""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classwise.core.errors import UserError
from classwise.data.download import damaged
from classwise.data.images import IntArray

Bytes = npt.NDArray[np.uint8]

_SHAPE = (3, 32, 32)  # each row holds the red, then the green, then the blue plane
_EMPTY = np.empty(0, dtype=np.uint8)
_RECONSTRUCT, _FROM_BUFFER = _EMPTY.__reduce__()[0], _EMPTY.__reduce_ex__(5)[0]

#: Every global an array, list or string needs, under the module names of numpy 1 and 2.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Forbidden(f"{module}.{name}") from None


class _Forbidden(Exception):
    """A pickle asked for a global outside the table."""


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle file made of arrays, lists and strings; anything else in it is refused."""
    try:
        with path.open("rb") as handle:
            content = _ArraysOnly(handle, encoding="latin1").load()
    except _Forbidden as error:
        raise UserError(
            f"{path} asks to call {error}, which no CIFAR file needs; it was not called. This is not the official "
            "file: delete it and download it again with download=True (--download)."
        ) from error
    except Exception as error:  # a cut or altered pickle may fail in any way
        raise damaged(path, error or type(error).__name__) from error
    if not isinstance(content, dict):
        raise damaged(path, f"it holds a {type(content).__name__} where a dictionary was expected")
    return content


def read_batches(paths: Sequence[Path], label_key: str) -> tuple[Bytes, IntArray]:
    """The images (N, 3, 32, 32) and labels of several batch files, in order."""
    batches = [_read_batch(path, label_key) for path in paths]
    images, labels = zip(*batches, strict=True)
    return images[0] if len(images) == 1 else np.concatenate(images), np.concatenate(labels)


def _read_batch(path: Path, label_key: str) -> tuple[Bytes, IntArray]:
    content = read_pickle(path)
    data, labels = content.get("data"), content.get(label_key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (np.prod(_SHAPE),):
        raise damaged(path, "its 'data' is not rows of 32×32 colour images")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(isinstance(y, int) for y in labels):
        raise damaged(path, f"it does not hold one of {label_key!r} for each of its {len(data)} images")
    return data.reshape(-1, *_SHAPE), np.asarray(labels, dtype=np.int64)
