"""Random numbers of each example, which depend on the example alone, as arrays; and the conversion back to bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from classwise.core import rng

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Chance:
    """One key per example; every draw has shape (N, *shape), and draws of one example differ by their `stream`."""

    keys: Tensor

    def __len__(self) -> int:
        return len(self.keys)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, stream: int = 0) -> Doubles:
        unit: Doubles = rng.uniform(self.keys, shape, stream).numpy().astype(np.float64)
        return low + (high - low) * unit

    def normal(self, *shape: int, mean: float = 0.0, scale: float = 1.0, stream: int = 0) -> Doubles:
        standard: Doubles = rng.normal(self.keys, shape, stream).numpy().astype(np.float64)
        return mean + scale * standard


def to_bytes(images: Floats) -> Bytes:
    """Images in [0,1] as bytes, cut to that range and then *truncated*, as the released files are."""
    return (np.clip(images, 0, 1) * 255).astype(np.uint8)
