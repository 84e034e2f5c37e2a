"""Replaced: the images of another data set that have a mask, on another background (`of`, `masks`, `colour`).

See `background` for the backgrounds and `masks` for the files. Only images with a mask are there, each with its own
index, so an audit of them pairs with one of the data set itself. A spec with settings in `of` is put in parentheses:
``replaced:of=(folder:resize=32,crop=32),masks=masks.npz``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.data.background import replace
from classwise.data.images import Images
from classwise.data.masks import read

PAPERS = ("tian2021",)


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    *,
    of: str = "cifar10",
    masks: str = "",
    colour: str = "white",
    seed: int = 0,
) -> Images:
    """A split of the data set `of`. `masks`: a file or folder, as it is or below `root`; `seed` is that of noise."""
    from classwise.data import load as load_data

    images = load_data(spec.nested(of), root, split, download)
    if not masks:
        raise UserError("replaced needs masks: give masks=FILE (.npy, .npz) or a folder of <index>.png.")
    below = Path(root) / masks
    found = read(below if below.exists() else masks)
    masked = np.flatnonzero(np.isin(images.positions, found.positions))
    if not masked.size:
        raise UserError(
            f"{masks} has no mask for any of the {len(images)} images of {images.name}; masks go by the example's "
            "index in its data set."
        )
    return replace(images.take(masked), found, colour, seed)
