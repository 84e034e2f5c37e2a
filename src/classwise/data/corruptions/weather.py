"""Snow, falling flakes over a bleached image; and fog, a plasma fractal over it."""

from __future__ import annotations

import numpy as np

from classwise.data.corruptions.blur import enlarge, smear
from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
#: Mean and scale of the noise, its enlargement, what is no flake, the smear's radius and σ, the share of the image.
_SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)


def snow(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """m·x + (1−m)·max(x, 1.5·luma + 0.5), plus the flakes, plus the flakes turned by 180°.

    Flakes are Gaussian noise, enlarged, cut off below, and smeared along U(−135°, −45°).
    """
    mean, scale, factor, cut, radius, sigma, share = _SNOW[severity - 1]
    height, width = images.shape[1:3]
    flakes = enlarge(chance.normal(height, width, 1, mean=mean, scale=scale), factor)
    flakes[flakes < cut] = 0
    layer = smear(to_bytes(flakes), radius, sigma, chance.uniform(low=-135, high=-45, stream=1)) / 255
    x = images.astype(np.float32) / 255
    bleached = np.maximum(x, (x @ _LUMA)[..., None] * 1.5 + 0.5)
    return to_bytes(share * x + (1 - share) * bleached + layer + layer[:, ::-1, ::-1])


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
