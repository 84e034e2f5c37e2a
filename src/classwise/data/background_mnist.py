"""MNIST with a colour behind the digits of each class, 28×28 RGB; `colours` says which classes share one.

Reads MNIST's files (see mnist). The assignments and what the paper leaves open: coloured.
Source: Tian et al., KDD 2021, §6.2 and Figure 5.
"""

from __future__ import annotations

from pathlib import Path

from classwise.data import mnist
from classwise.data.coloured import coloured
from classwise.data.images import Images, check_split

PAPERS = ("tian2021", "lecun1998")
FLIPS = False
SIZE = mnist.SIZE._replace(shape=(3, 28, 28))
CLASS_NAMES = mnist.CLASS_NAMES


def load(
    root: str | Path, split: str = "test", download: bool = False, colours: str = "pairs", seed: int = 0
) -> Images:
    """The split "train" or "test"; `colours` is pairs, shifted, both, halves, random or black."""
    check_split("background_mnist", split, ("train", "test"))
    return coloured(mnist.load(root, split, download), colours, seed)
