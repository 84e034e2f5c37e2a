"""Corruption: another data set under one of 19 natural corruptions, made when a batch is read (`of`, `kind`).

CIFAR-C's corruptions (Hendrycks and Dietterich, ICLR 2019) with their constants and their truncation to bytes, on any
square images of at least 8 pixels. What the original writes as a share of the side (elastic transform, pixelate, the
area glass blur scans, fog's map) follows the size; what it writes in pixels (the other blurs, snow, spatter) does not,
so on larger images those are finer. Images not of 8 bits are rounded to them first. Departures are documented in the
files of `corruptions`; the released files themselves are the data sets `cifar10_c` and `cifar100_c`.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.data.corruptions import COLOUR_ONLY, NAMES, Corruption, check, find
from classwise.data.corruptions.chance import Chance
from classwise.data.images import Images, IntArray, Pixels

PAPERS = ("hendrycks2019",)

_CHUNK = 256  # images at a time: what is in between is held in float64
_SMALLEST = 8
_STREAM = 1 << 32  # keeps the draws apart from an attack's of the same seed and example
_GENERATED = "generated"


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    *,
    of: str = "cifar10",
    kind: str = "gaussian_noise",
    severity: int = 3,
    seed: int = 0,
    frost: str = _GENERATED,
) -> Images:
    """A split of the data set `of`, corrupted. `frost`: the folder of the frost photographs, or "generated"."""
    from classwise.data import load as load_data

    check(kind, severity)
    return corrupt(load_data(of, root, split, download), kind, severity, seed, frost)


def corrupt(images: Images, kind: str, severity: int = 3, seed: int = 0, frost: str = _GENERATED) -> Images:
    """The same examples, corrupted; the result depends only on seed, corruption, severity and the example's index."""
    check(kind, severity)
    channels, height, width = images.pixels.read(images.positions[:1]).shape[1:]
    if height != width or height < _SMALLEST:
        raise UserError(
            f"corruptions need square images of at least {_SMALLEST} pixels; those of {images.name} are "
            f"{height}×{width}. For files, folder:resize=… makes them square."
        )
    if channels != 3 and kind in COLOUR_ONLY:
        greys = ", ".join(name for name in NAMES if name not in COLOUR_ONLY)
        raise UserError(
            f"{kind} needs colour, and the images of {images.name} have {channels} channel. These work: {greys}."
        )
    function = _frost(frost, height) if kind == "frost" else find(kind)
    settings = f"of={images.name},kind={kind},severity={severity},seed={seed}"
    settings += f",frost={frost}" if kind == "frost" else ""
    stream = _STREAM + 8 * NAMES.index(kind) + severity
    pixels = CorruptedPixels(clean=images.pixels, function=function, severity=severity, seed=seed, stream=stream)
    return dataclasses.replace(images, pixels=pixels, name=f"corruption:{settings}")


@dataclass(frozen=True, kw_only=True)
class CorruptedPixels:
    """Images of another source, corrupted each time they are read."""

    clean: Pixels
    function: Corruption
    severity: int
    seed: int
    stream: int

    def __len__(self) -> int:
        return len(self.clean)

    def read(self, rows: IntArray) -> Tensor:
        parts = [self._corrupt(rows[first : first + _CHUNK]) for first in range(0, len(rows), _CHUNK)]
        return torch.cat(parts) if parts else self.clean.read(rows)

    def _corrupt(self, rows: IntArray) -> Tensor:
        clean = self.clean.read(rows).cpu().mul(255).round().to(torch.uint8).permute(0, 2, 3, 1)
        chance = Chance(rng.keys(self.seed, torch.as_tensor(rows), self.stream))
        corrupted = self.function(clean.contiguous().numpy(), chance, self.severity)
        return torch.from_numpy(corrupted).permute(0, 3, 1, 2).float().div_(255).contiguous()


def _frost(source: str, side: int) -> Corruption:
    from classwise.data.corruptions import frost

    panes = None if source == _GENERATED else frost.photographs(source, side)
    return functools.partial(frost.frost, panes=panes)
