"""MNIST: handwritten digits, 28×28 grey, 60,000 train and 10,000 test.

Reads ``root/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte``, plain or ``.gz``.
Source: LeCun, Cortes, Burges; served from the PyTorch project's mirror, as torchvision does.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data import idx
from classwise.data.images import Images, Size

PAPERS = ("lecun1998",)
FLIPS = False
SIZE = Size((1, 28, 28), 10, 60_000, 10_000)
NORMALIZATION = ((0.1307,), (0.3081,))  # mean and standard deviation of each channel
CLASS_NAMES = tuple("0123456789")

REMOTES = idx.remotes(
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "md5:9fb629c4189551a2d022fa330f9573f3",
    "md5:ec29112dd5afa0611ce80d1b7f02629c",
)


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "test", uint8 in memory."""
    return idx.labelled("mnist", Path(root).expanduser() / "MNIST" / "raw", split, CLASS_NAMES, REMOTES, download)
