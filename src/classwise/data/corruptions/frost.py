"""Frost: pieces of frosted window panes laid over the image.

The original cuts them from five photographs (it ships a sixth that it never draws). They are not part of classwise:
give the folder that holds them, or take generated panes. Those are another corruption in the same spirit, not tuned
to the photographs, and are named "generated" wherever the data set's name is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.data.corruptions.chance import Bytes, Chance, Floats
from classwise.data.decoding import opened
from classwise.data.files import image_files

_COUNT = 5
_CELLS = (7, 13, 27, 53, 107)  # of each octave's lattice across a pane; not multiples, so that they do not line up
_DARK, _LIGHT = np.array([50.0, 75.0, 110.0]), np.array([245.0, 250.0, 255.0])


def frost(images: Bytes, chance: Chance, severity: int, panes: Sequence[Bytes] | None = None) -> Bytes:
    """a·x + b·pane, where the pane is a random piece of one of five."""
    keep, add = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    side = images.shape[1]
    sources = generated(side) if panes is None else panes
    pieces = np.empty_like(images)
    for number, (which, down, right) in enumerate(chance.uniform(3)):
        pane = sources[int(which * len(sources))]
        top, left = int(down * (pane.shape[0] - side)), int(right * (pane.shape[1] - side))
        pieces[number] = pane[top : top + side, left : left + side]
    return np.clip(keep * images + add * pieces.astype(np.float64), 0, 255).astype(np.uint8)


def photographs(folder: str | Path, side: int) -> list[Bytes]:
    """The first five images of a folder, in alphabetical order, made small for images of the given side.

    At 32 pixels every fifth row and column is kept, which is what the original's resizing comes to; at other sizes
    as many as leave a piece the same share of the photograph.
    """
    paths = image_files(Path(folder).expanduser()) if Path(folder).expanduser().is_dir() else []
    if not paths:
        raise UserError(
            f"frost: there is no folder {str(folder)!r} with images in it. Give the folder of the original's "
            "photographs (frost1.png …), or frost=generated for a generated texture."
        )
    step = max(1, round(5 * 32 / side))
    return [_photograph(path, step, side) for path in paths[:_COUNT]]


def _photograph(path: str, step: int, side: int) -> Bytes:
    with opened(path, refusal="frost: cannot read the image") as image:
        pane = np.asarray(image.convert("RGB"))[step // 2 :: step, step // 2 :: step]
    if min(pane.shape[:2]) <= side:
        raise UserError(
            f"frost: {path} is too small for images of {side} pixels: its sides must be longer than {side * step}."
        )
    return np.ascontiguousarray(pane)


@functools.lru_cache(4)
def generated(side: int) -> tuple[Bytes, ...]:
    """Five panes of ridged fractal noise, six times as wide as the images, from dark blue to white; always the same."""
    keys = rng.keys(0, torch.arange(_COUNT))
    octaves = [_ridges(rng.uniform(keys, (cells, cells), cells).numpy(), 6 * side) for cells in _CELLS]
    weights = [0.7**level for level in range(len(octaves))]
    relief = sum(weight * octave for weight, octave in zip(weights, octaves, strict=True)) / sum(weights)
    ice = np.clip((relief - 0.25) / 0.6, 0, 1)[..., None]
    return tuple((_DARK + (_LIGHT - _DARK) * ice).astype(np.uint8))


def _ridges(lattices: Floats, side: int) -> Floats:
    """Crests where smooth noise crosses its middle: 1 − |2u − 1|, squared, of lattices enlarged to `side`."""
    factor = side / lattices.shape[1]
    smooth = np.stack([ndimage.zoom(flat, factor, order=3, mode="grid-wrap", grid_mode=True) for flat in lattices])
    crests: Floats = (1 - np.minimum(np.abs(2 * smooth - 1), 1)) ** 2
    return crests
