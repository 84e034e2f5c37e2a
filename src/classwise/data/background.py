"""Another background behind the same foreground (Tian et al., KDD 2021, §6.2, Table 4 and Figure 6).

    x̃ = M ⊙ x + (1 − M) ⊙ b          M: the foreground's mask, b: a colour, noise, or the background's own mean

The paper takes b = white, because the images of its weakest class with the highest confidence under attack are white
behind the animal. The other backgrounds, and masks that know nothing of the image (`masks.blobs`, `masks.shuffled`),
are controls: white helps as white only if grey does not, and as a background only if a blob of white does not.

The "training adjustment" of Table 4 and Figure 6 is no other data set: it is §6.1's TRADES with β = 0.5 for one class
(`Trades(beta={"dog": 0.5})`), audited on the same replaced images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import ImageColor
from torch import Tensor

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.data.images import Images, IntArray, Pixels
from classwise.data.masks import Masks

Colour = str | Sequence[float]

NOISE, MEAN = "noise", "mean"

_STREAM = 0x6E6F697365  # apart from what attacks draw for the same example


@dataclass(frozen=True)
class ReplacedPixels:
    """Images whose background is `colour` (one value per channel), "noise" or "mean"."""

    source: Pixels
    masks: Masks
    colour: str | tuple[float, ...]
    seed: int = 0

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: IntArray) -> Tensor:
        x = self.source.read(rows)
        foreground = torch.from_numpy(self.masks.of(rows))[:, None].to(x.device)
        return torch.where(foreground, x, self._background(x, foreground, rows))

    def _background(self, x: Tensor, foreground: Tensor, rows: IntArray) -> Tensor:
        if self.colour == NOISE:
            keys = rng.keys(self.seed, torch.from_numpy(rows), _STREAM)
            return rng.uniform(keys, x.shape[1:]).to(x.device)
        if self.colour == MEAN:
            behind = (~foreground).float()
            return (x * behind).sum((2, 3), keepdim=True) / behind.sum((2, 3), keepdim=True).clamp_min(1)
        return torch.tensor(self.colour, dtype=x.dtype, device=x.device)[None, :, None, None]


def replace(images: Images, masks: Masks, colour: Colour = "white", seed: int = 0) -> Images:
    """The images with another background, read when asked for; indices, labels and classes stay.

    colour: a CSS name or "#rrggbb"; a number in [0,1] per channel; "noise", uniform in every pixel and channel, by the
    seed and the example's index; or "mean", the mean of the image's own background, which takes its texture away and
    leaves its colour.
    """
    foreground = masks.of(images.positions)  # a missing mask is an error here and not in the middle of an audit
    shape = tuple(images.batch(np.arange(1))[0].shape[1:])
    if foreground.shape[1:] != shape[1:]:
        (height, width), (rows, columns) = shape[1:], foreground.shape[1:]
        raise UserError(
            f"{masks.name} holds masks of {rows}×{columns} pixels, but the images of {images.name} have "
            f"{height}×{width}. Make the masks from these images."
        )
    fill = colour if colour in (NOISE, MEAN) else _values(colour, shape[0])
    described = colour if isinstance(colour, str) else "-".join(f"{value:g}" for value in colour)
    pixels = ReplacedPixels(images.pixels, masks, fill, seed)
    return dataclasses.replace(images, pixels=pixels, name=f"{images.name} on {described} by {masks.name}")


def rgb(colour: Colour) -> tuple[float, ...]:
    """Red, green and blue in [0,1] of a CSS name or "#rrggbb"; numbers are only checked."""
    if isinstance(colour, str):
        try:
            return tuple(level / 255 for level in ImageColor.getrgb(colour)[:3])
        except ValueError:
            pass
    elif len(colour) and all(0 <= value <= 1 for value in colour):
        return tuple(float(value) for value in colour)
    raise UserError(
        f"{colour!r} is no colour of a background; give a CSS name such as white or grey, #rrggbb, one number in "
        f"[0, 1] per channel, {NOISE} or {MEAN}."
    )


def _values(colour: Colour, channels: int) -> tuple[float, ...]:
    """The colour in as many channels as the images have; grey images take only a grey."""
    values = rgb(colour)
    if channels == 1 and len(set(values)) == 1:
        return values[:1]
    if len(values) != channels:
        raise UserError(f"the colour {colour!r} has {len(values)} channels, but the images have {channels}.")
    return values
