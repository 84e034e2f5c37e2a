"""Motion blur: each image smeared along a direction of its own."""

from __future__ import annotations

import math

import numpy as np

from classwise.data.corruptions.chance import Bytes, Chance, Doubles


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
