"""Natural corruptions of CIFAR-C (Hendrycks and Dietterich, ICLR 2019): their names, their kinds, and where each is.

Fifteen make the benchmark and four more were kept for validation; each has five severities, with the constants the
authors used for 32×32 images (not the paper's, which are ImageNet's). `Corruption` is what each of them is.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from classwise.core.errors import UserError, lookup
from classwise.data.corruptions.chance import Bytes, Chance

__all__ = ["CATEGORIES", "COLOUR_ONLY", "EXTRA", "NAMES", "SEVERITIES", "STANDARD", "category", "check", "find"]


class Corruption(Protocol):
    """Images (N, H, W, C) as bytes, the chance of each, and a severity from 1 to 5 to corrupted images."""

    def __call__(self, images: Bytes, chance: Chance, severity: int) -> Bytes: ...


#: Each corruption's category and its file. The order is the benchmark's and numbers the random draws: only append.
_TABLE = {
    "gaussian_noise": ("noise", "noise"),
    "shot_noise": ("noise", "noise"),
    "impulse_noise": ("noise", "noise"),
    "defocus_blur": ("blur", "blur"),
    "glass_blur": ("blur", "blur"),
    "motion_blur": ("blur", "blur"),
    "zoom_blur": ("blur", "blur"),
    "snow": ("weather", "weather"),
    "frost": ("weather", "frost"),
    "fog": ("weather", "weather"),
    "brightness": ("weather", "colour"),
    "contrast": ("digital", "colour"),
    "elastic_transform": ("digital", "digital"),
    "pixelate": ("digital", "digital"),
    "jpeg_compression": ("digital", "digital"),
    "speckle_noise": ("noise", "noise"),
    "gaussian_blur": ("blur", "blur"),
    "spatter": ("weather", "spatter"),
    "saturate": ("digital", "colour"),
}

NAMES = tuple(_TABLE)
STANDARD = NAMES[:15]
EXTRA = NAMES[15:]
SEVERITIES = (1, 2, 3, 4, 5)
#: The names of each category, those of `EXTRA` last.
CATEGORIES = {
    kind: tuple(name for name in NAMES if _TABLE[name][0] == kind) for kind in ("noise", "blur", "weather", "digital")
}
COLOUR_ONLY = frozenset({"snow", "frost", "brightness", "spatter", "saturate"})


def category(name: str) -> str:
    """The category of a corruption: noise, blur, weather or digital."""
    return lookup("corruption", name, _TABLE)[0]


def check(name: str, severity: int) -> None:
    """Raise unless there is such a corruption and such a severity."""
    category(name)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be a whole number from 1 (mild) to 5 (severe), got {severity}.")


def find(name: str) -> Corruption:
    """The function of a corruption; its file is only read now."""
    module = importlib.import_module(f"{__name__}.{lookup('corruption', name, _TABLE)[1]}")
    return cast(Corruption, getattr(module, name))
