"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens.

The original shades the water with a chain of OpenCV operations on bytes. They are reimplemented here from OpenCV's
documentation, and work on a whole batch of layers (N, H, W) at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from classwise.data.corruptions.blur import smooth
from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_WATER = np.array([175, 238, 238]) / 255
_MUD = np.array([63, 42, 20]) / 255
#: Mean and scale of the noise, its blur's σ, what is no drop, then the strength of water or the blur's σ of mud.
_SEVERITIES = (
    (0.62, 0.1, 0.7, 0.7, 0.5),
    (0.65, 0.1, 0.8, 0.7, 0.5),
    (0.65, 0.3, 1.0, 0.69, 0.5),
    (0.65, 0.1, 0.7, 0.69, 0.6),
    (0.65, 0.1, 0.5, 0.68, 0.6),
)
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_FURTHEST = 20


def spatter(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Water: x + c·m·turquoise, m the shaded drops over their maximum. Mud: (1 − m)·x + m·brown, m ≥ 0.8 or 0."""
    mean, scale, sigma, cut, last = _SEVERITIES[severity - 1]
    x = images / 255
    layer = smooth(chance.normal(*images.shape[1:3], mean=mean, scale=scale), sigma)
    if severity <= 3:
        return to_bytes(x + last * _water(np.where(layer < cut, 0, layer))[..., None] * _WATER)
    mud = smooth((layer > cut).astype(np.float64), last)
    mud = np.where(mud < 0.8, 0, mud)[..., None]
    return to_bytes(x * (1 - mud) + mud * _MUD)


def _water(layer: Doubles) -> Doubles:
    """The drops, lit from the lower right by their distance to the nearest edge, over their maximum."""
    drops = (layer * 255).astype(np.int64) % 256  # a byte overflows
    distance = np.minimum(chamfer(edges(drops)), _FURTHEST)
    height = equalise((_nine(distance) / 9).astype(np.float32).astype(np.int64))
    lit = np.clip(ndimage.correlate(height, _RELIEF[None], mode="mirror"), 0, 255)
    shaded = drops * np.rint(_nine(lit) / 9)
    most = shaded.max(axis=(1, 2), keepdims=True)
    return shaded / np.where(most > 0, most, 1)


def _nine(images: npt.NDArray[np.generic]) -> Doubles:
    """The sum over each pixel's 3×3 neighbours."""
    total: Doubles = ndimage.correlate(images.astype(np.float64), np.ones((1, 3, 3)), mode="mirror")
    return total


def edges(layers: Whole, low: int = 50, high: int = 150) -> Mask:
    """Canny's edges (1986) with Sobel's 3×3 gradient in the L1 norm.

    A pixel is kept if its gradient is above `low` and the largest across the edge, and if edge pixels join it to one
    above `high`. As in OpenCV, ties go to the left and upper pixel and the direction is one of four.
    """
    right = _sobel(layers, axis=2)
    down = _sobel(layers, axis=1)
    size = np.abs(right) + np.abs(down)
    around = np.pad(size, ((0, 0), (1, 1), (1, 1)))

    def at(rows: int, columns: int) -> Whole:
        neighbour: Whole = around[:, 1 + rows :, 1 + columns :][:, : size.shape[1], : size.shape[2]]
        return neighbour

    steep = np.abs(down) * (1 << 15)
    flat = np.abs(right) * 13573  # tan 22.5° in units of 2⁻¹⁵
    falling = (right < 0) == (down < 0)
    diagonal = np.where(falling, (size > at(-1, -1)) & (size > at(1, 1)), (size > at(-1, 1)) & (size > at(1, -1)))
    upright = (size > at(0, -1)) & (size >= at(0, 1))
    level = (size > at(-1, 0)) & (size >= at(1, 0))
    crest = np.where(steep < flat, upright, np.where(steep > flat + (np.abs(right) << 16), level, diagonal))
    crest &= size > low
    within = np.zeros((3, 3, 3), dtype=bool)
    within[1] = True  # pixels of one image touch, images do not
    parts, count = ndimage.label(crest, within)
    strong = np.zeros(count + 1, dtype=bool)
    strong[parts[crest & (size > high)]] = True
    return strong[parts]


def _sobel(layers: Whole, axis: int) -> Whole:
    across = ndimage.correlate1d(layers, [-1, 0, 1], axis=axis, mode="nearest")
    gradient: Whole = ndimage.correlate1d(across, [1, 2, 1], axis=3 - axis, mode="nearest")
    return gradient


def chamfer(targets: Mask) -> Doubles:
    """The distance of each pixel to the nearest target of its image, by steps of 1, 1.4 (diagonal) and 2.1969 (knight).

    Borgefors' 5×5 approximation (1986) in OpenCV's fixed point of 16 bits. Beyond `_FURTHEST` it is left at infinity.
    """
    lengths = {1: 1.0, 2: 1.4, 5: 2.1969}  # by squared length
    steps = [(r, c) for r in range(-2, 3) for c in range(-2, 3) if r * r + c * c in lengths]
    distance = np.where(targets, 0.0, np.inf)
    height, width = targets.shape[1:]
    for _ in range(_FURTHEST):
        around = np.pad(distance, ((0, 0), (2, 2), (2, 2)), constant_values=np.inf)
        before = distance
        for r, c in steps:
            length = round(lengths[r * r + c * c] * 65536) / 65536
            distance = np.minimum(distance, around[:, 2 + r : 2 + r + height, 2 + c : 2 + c + width] + length)
        if np.array_equal(before, distance):
            break
    return distance


def equalise(images: Whole) -> Whole:
    """Histogram equalisation of each image, as bytes; an image of one value stays as it is."""
    values = np.arange(int(images.max()) + 1)
    counts = (images[..., None] == values).sum(axis=(1, 2))
    first = (counts > 0).argmax(axis=1)
    lowest = counts[np.arange(len(counts)), first][:, None]
    rest = images[0].size - lowest
    table = np.rint((counts.cumsum(axis=1) - lowest) * (255 / np.maximum(rest, 1)))
    table = np.where(rest == 0, values, np.maximum(table, 0)).astype(np.int64)
    return np.take_along_axis(table, images.reshape(len(images), -1), axis=1).reshape(images.shape)
