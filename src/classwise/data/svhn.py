"""SVHN: digits of house numbers, 32×32 colour, 73,257 train, 26,032 test and 531,131 extra.

Reads ``root/svhn/{train,test,extra}_32x32.mat``, or the same files directly under ``root``. The files number the
digit 0 as 10; here it is class 0. Source: Netzer et al., 2011.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.data.download import Remote, damaged, locate
from classwise.data.images import ArrayPixels, Images, Size, check_split

PAPERS = ("netzer2011",)
FLIPS = False
SIZE = Size((3, 32, 32), 10, 73_257, 26_032)
CLASS_NAMES = tuple("0123456789")

_SHAPE = (32, 32, 3)
_URL = "http://ufldl.stanford.edu/housenumbers/"
REMOTES = {
    "train": Remote(f"{_URL}train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
    "test": Remote(f"{_URL}test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"),
    "extra": Remote(f"{_URL}extra_32x32.mat", "md5:a93ce644f1a588dc4d68dda5feec44a7"),
}


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train", "test" or "extra", uint8 in memory."""
    check_split("svhn", split, REMOTES)
    root = Path(root).expanduser()
    file = f"{split}_32x32.mat"
    path = locate("svhn", [root / "svhn" / file, root / file], REMOTES[split], root / "svhn", download)
    return _read(path)


def _read(path: Path) -> Images:
    from scipy.io import loadmat  # here, because it takes longer to import than to use

    try:
        content = loadmat(path, variable_names=("X", "y"))
    except Exception as error:  # a cut or altered file may fail in any way
        raise damaged(path, error) from error
    pixels, labels = content.get("X"), content.get("y")
    if pixels is None or labels is None or pixels.dtype != np.uint8 or pixels.shape != (*_SHAPE, labels.size):
        raise damaged(path, "it does not hold images X (32, 32, 3, N) and N labels y")
    # MATLAB stores the first dimension fastest, so each image stays one block of memory: a view will do.
    images = pixels.transpose(3, 2, 0, 1)
    return Images(ArrayPixels(images), labels.reshape(-1).astype(np.int64) % len(CLASS_NAMES), CLASS_NAMES, "svhn")
