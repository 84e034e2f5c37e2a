"""Fashion-MNIST: articles of clothing, 28×28 grey, 60,000 train and 10,000 test.

Reads ``root/FashionMNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte``, plain or ``.gz``.
Source: Xiao, Rasul, Vollgraf, 2017, arXiv:1708.07747.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data import idx
from classwise.data.images import Images, Size

PAPERS = ("xiao2017",)
FLIPS = True
SIZE = Size((1, 28, 28), 10, 60_000, 10_000)
CLASS_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

REMOTES = idx.remotes(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "md5:25c81989df183df01b3e8a0aad5dffbe",
    "md5:bef4ecab320f06d8554ea6380940ec79",
    "md5:bb300cfdad3c16e7a12a480ee83cd310",
)


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", uint8 in memory."""
    raw = Path(root).expanduser() / "FashionMNIST" / "raw"
    return idx.labelled("fashion_mnist", raw, split, CLASS_NAMES, REMOTES, download)
