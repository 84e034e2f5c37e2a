"""Snow: a bleached image under falling flakes."""

from __future__ import annotations

import numpy as np

from classwise.data.corruptions.blur import enlarge, smear
from classwise.data.corruptions.chance import Bytes, Chance, to_bytes

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
#: Mean and scale of the noise, its enlargement, what is no flake, the smear's radius and σ, the share of the image.
_SEVERITIES = (
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
    mean, scale, factor, cut, radius, sigma, share = _SEVERITIES[severity - 1]
    height, width = images.shape[1:3]
    flakes = enlarge(chance.normal(height, width, 1, mean=mean, scale=scale), factor)
    flakes[flakes < cut] = 0
    layer = smear(to_bytes(flakes), radius, sigma, chance.uniform(low=-135, high=-45, stream=1)) / 255
    x = images.astype(np.float32) / 255
    bleached = np.maximum(x, (x @ _LUMA)[..., None] * 1.5 + 0.5)
    return to_bytes(share * x + (1 - share) * bleached + layer + layer[:, ::-1, ::-1])
