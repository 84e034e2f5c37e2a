"""Blurs: Gaussian, defocus, frosted glass, motion along a direction of each image's own, and zoom."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import ndimage

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, Floats, to_bytes


def gaussian_blur(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Convolution with a Gaussian, the border repeated."""
    return to_bytes(smooth(images / 255, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]))


def smooth(images: Floats, sigma: float) -> Doubles:
    """A Gaussian blur of each image (N, H, W, …), cut at four σ."""
    sigmas = (0, sigma, sigma) + (0,) * (images.ndim - 3)
    blurred: Doubles = ndimage.gaussian_filter(images, sigmas, mode="nearest", output=np.float64)
    return blurred


def defocus_blur(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Correlation with a disk whose rim was softened by a 3×3 Gaussian; the border is mirrored about its pixels."""
    radius, rim = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    kernel = _disk(radius, rim)[None, :, :, None].astype(np.float64)
    return to_bytes(ndimage.correlate(images / 255, kernel, mode="mirror"))


def _disk(radius: float, rim: float) -> Floats:
    side = np.arange(-int(radius) - 1, int(radius) + 2)
    disk = (side[:, None] ** 2 + side**2 <= radius**2).astype(np.float32)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * rim**2))
    taps /= taps.sum()
    softened: Floats = ndimage.correlate(disk / disk.sum(), np.outer(taps, taps), mode="constant")
    return softened


def glass_blur(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Blur, let each pixel take the place of a near one, blur again.

    The original means to swap (h, w) with a pixel up to one up and one to the left, but swaps two views of an array:
    (h, w) receives the other's colour and the other keeps it. The released files are so, hence so is this. It scans
    upwards from the lower right, so what it reads it has not yet written: a pass is one gather.
    """
    sigma, passes = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    shuffled = (smooth(images / 255, sigma) * 255).astype(np.uint8)
    inner = np.arange(2, images.shape[1])  # the original scan leaves out two rows and columns
    example = np.arange(len(images))[:, None, None]
    for number in range(passes):
        up, left = np.moveaxis(chance.uniform(2, len(inner), len(inner), stream=number) < 0.5, 1, 0)
        shuffled[:, 2:, 2:] = shuffled[example, inner[:, None] - up, inner - left]
    return to_bytes(smooth(shuffled / 255, sigma))


def motion_blur(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Smeared along an angle from U(−45°, 45°)."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    return smear(images, radius, sigma, chance.uniform(low=-45, high=45))


def smear(images: Bytes, radius: int, sigma: float, angles: Doubles) -> Bytes:
    """x'(p) = Σₖ wₖ·x(p + round(k·(cos θ, sin θ))), wₖ ∝ exp(−k²/2σ²), k = 0 … 2·radius; the border is repeated.

    Departure: the original calls ImageMagick's MotionBlurImage. This is the same one-sided sum at whole pixels,
    reimplemented; ImageMagick rounds it to 16 bits before it rounds to 8, which may move a value by one.
    """
    reach, (height, width) = 2 * radius, images.shape[1:3]
    taps = np.arange(reach + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge").astype(np.float64)
    smeared = np.empty_like(images)
    for number, angle in enumerate(angles * (math.pi / 180)):
        rights = reach + np.ceil(taps * math.cos(angle) - 0.5).astype(np.int64)
        downs = reach + np.ceil(taps * math.sin(angle) - 0.5).astype(np.int64)
        total = np.zeros(images.shape[1:])
        for weight, down, right in zip(weights, downs, rights, strict=True):
            total += weight * padded[number, down : down + height, right : right + width]
        smeared[number] = total + 0.5
    return smeared


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
