"""CIFAR-10: vehicles and animals, 32×32 colour, 50,000 train and 10,000 test.

Reads ``root/cifar-10-batches-py/{data_batch_1…5,test_batch}``. Source: Krizhevsky, 2009. The two superclasses are
those of the class-wise robustness literature.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data.cifar_files import read_batches
from classwise.data.download import Remote, locate
from classwise.data.images import ArrayPixels, Images, Size, check_split

PAPERS = ("krizhevsky2009",)
FLIPS = True
SIZE = Size((3, 32, 32), 10, 50_000, 10_000)
NORMALIZATION = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))  # mean and standard deviation of each channel
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SUPERCLASSES = {
    "transportation": ("airplane", "automobile", "ship", "truck"),
    "animals": ("bird", "cat", "deer", "dog", "frog", "horse"),
}

ARCHIVE = Remote("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a")
_FILES = {"train": tuple(f"data_batch_{part}" for part in range(1, 6)), "test": ("test_batch",)}


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", uint8 in memory."""
    check_split("cifar10", split, _FILES)
    root = Path(root).expanduser()
    folder = root / "cifar-10-batches-py"
    paths = [locate("cifar10", [folder / file], ARCHIVE, root, download) for file in _FILES[split]]
    images, labels = read_batches(paths, "labels")
    return Images(ArrayPixels(images), labels, CLASS_NAMES, "cifar10", superclasses=SUPERCLASSES)
