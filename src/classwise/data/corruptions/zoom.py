"""Zoom blur: an image averaged with enlargements of its centre."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import ndimage

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, Floats, to_bytes


def zoom_blur(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """(x + Σ_z zoom(x, z)) / (n + 1) over z = 1, 1.01, …; z = 1 is among them, so x counts at least twice."""
    end = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    factors = np.arange(1, end, 0.01)  # rounding lets 1.06 and 1.11 in, but not the other three ends
    x = (images / 255).astype(np.float32)
    total = x.copy()
    for factor in factors:
        total += enlarge(x, float(factor))
    return to_bytes(total / (len(factors) + 1))


def enlarge(images: Floats, factor: float) -> Floats:
    """The centre of each image (N, H, H, C), enlarged to the whole by linear interpolation."""
    matrix = _matrix(images.shape[1], factor).astype(images.dtype)
    flat = images.reshape(*images.shape[:2], -1)
    rows = (matrix @ flat).reshape(images.shape)
    return matrix @ rows


@functools.lru_cache(64)
def _matrix(size: int, factor: float) -> Doubles:
    """What enlarging does to one axis: scipy's interpolation of ⌈size/factor⌉ central pixels, cut to `size`."""
    crop = math.ceil(size / factor)
    enlarged = ndimage.zoom(np.eye(crop), (factor, 1), order=1)
    first, cut = (size - crop) // 2, (len(enlarged) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, first : first + crop] = enlarged[cut : cut + size]
    return matrix
