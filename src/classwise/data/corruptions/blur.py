"""Isotropic blurs: Gaussian, defocus, and frosted glass."""

from __future__ import annotations

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
