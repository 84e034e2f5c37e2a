"""Digits: handwritten digits, 8×8 grey, 1,442 train and 355 test; comes with scikit-learn, no download.

Source: Alpaydin and Kaynak, 1998 (UCI), the 1,797 examples scikit-learn carries. Pixels 0…16 are divided by 16. There
is no official split: the test split is every fifth example of each class in file order, the train split the rest.
An example's index is its position in scikit-learn's order, so the two splits never share one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.data.images import ArrayPixels, Images, Size, check_split

PAPERS = ("alpaydin1998",)
FLIPS = False
SIZE = Size((1, 8, 8), 10, 1442, 355)
CLASS_NAMES = tuple("0123456789")

_SPLITS = ("train", "test")
_BRIGHTEST = 16
_FOLDS = 5


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", in memory. `root` and `download` are not needed: the data is in scikit-learn."""
    from sklearn.datasets import load_digits  # here, because it takes longer to import than to use

    check_split("digits", split, _SPLITS)
    digits = load_digits()
    images = (digits.images / _BRIGHTEST).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    held_out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        held_out[np.flatnonzero(labels == label)[_FOLDS - 1 :: _FOLDS]] = True
    rows = np.flatnonzero(held_out == (split == "test"))
    return Images(ArrayPixels(images), labels[rows], CLASS_NAMES, "digits", index=rows)
