"""STL-10: vehicles and animals, 96×96 colour, 5,000 train and 8,000 test.

Reads ``root/stl10_binary/{train,test}_{X,y}.bin`` (the unlabelled images are not used). Source: Coates, Lee, Ng, 2011.
The two superclasses are those of the class-wise robustness literature.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.data.download import Remote, damaged, locate
from classwise.data.images import ArrayPixels, Images, Size, check_split

PAPERS = ("coates2011",)
FLIPS = True
SIZE = Size((3, 96, 96), 10, 5_000, 8_000)
CLASS_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
SUPERCLASSES = {
    "transportation": ("airplane", "car", "ship", "truck"),
    "animals": ("bird", "cat", "deer", "dog", "horse", "monkey"),
}

ARCHIVE = Remote("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "md5:91f7769df0f17e558f3565bffb0c7dfb")
_SPLITS = ("train", "test")
_SHAPE = (3, 96, 96)


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", uint8 in memory."""
    check_split("stl10", split, _SPLITS)
    root = Path(root).expanduser()
    folder = root / "stl10_binary"
    pixels, numbers = (
        locate("stl10", [folder / f"{split}_{part}.bin"], ARCHIVE, root, download) for part in ("X", "y")
    )
    flat, labels = np.fromfile(pixels, dtype=np.uint8), np.fromfile(numbers, dtype=np.uint8)
    if flat.size != labels.size * int(np.prod(_SHAPE)):
        raise damaged(pixels, f"its {flat.size} bytes are not one 96×96 colour image for each of {labels.size} labels")
    images = flat.reshape(-1, *_SHAPE).swapaxes(2, 3)  # the file stores each plane column by column
    return Images(ArrayPixels(images), labels.astype(np.int64) - 1, CLASS_NAMES, "stl10", superclasses=SUPERCLASSES)
