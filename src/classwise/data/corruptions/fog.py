"""Fog: a plasma fractal laid over the image."""

from __future__ import annotations

import numpy as np

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes


def fog(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """(x + c·plasma)·m/(m + c), where m is the image's brightest value."""
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    height, width = images.shape[1:3]
    x = images / 255
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    x += thickness * plasma(chance, max(height, width), decay)[:, :height, :width, None]
    return to_bytes(x * brightest / (brightest + thickness))


def plasma(chance: Chance, size: int, decay: float) -> Doubles:
    """Heights in [0,1] by the diamond-square algorithm, on the next power of two and wrapped around its borders.

    At each halving of the grid a new point is the mean of its four neighbours plus w·U(−w, w); w starts at 100 and is
    divided by `decay`.
    """
    side = 1 << (size - 1).bit_length()
    heights = np.zeros((len(chance), side, side))
    for level in range(side.bit_length() - 1):
        step, half = side >> level, side >> (level + 1)
        reach, count = 100 / decay**level, 1 << level
        wobble = reach * chance.uniform(3, count, count, low=-reach, high=reach, stream=level)
        corner = heights[:, ::step, ::step]
        above = corner + np.roll(corner, -1, axis=1)
        centre = (above + np.roll(above, -1, axis=2)) / 4 + wobble[:, 0]
        across = corner + np.roll(corner, -1, axis=2) + centre + np.roll(centre, 1, axis=1)
        down = above + centre + np.roll(centre, 1, axis=2)
        heights[:, half::step, half::step] = centre
        heights[:, ::step, half::step] = across / 4 + wobble[:, 1]
        heights[:, half::step, ::step] = down / 4 + wobble[:, 2]
    heights -= heights.min(axis=(1, 2), keepdims=True)
    heights /= heights.max(axis=(1, 2), keepdims=True)
    return heights
