"""Random numbers that belong to an example, not to a batch.

A counter-based generator (SplitMix64: Steele, Lea, Flood, OOPSLA 2014) maps (key, stream, position) to a number.
The key comes from the seed and the example's index, so an audit that is resumed, re-batched or sharded draws the
same random start for the same image, on every device. Global random state is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # as a signed 64-bit integer; torch's int64 arithmetic wraps
_MIX1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX2 = 0x94D049BB133111EB - 2**64


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser: every input bit changes every output bit with probability one half."""
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def keys(seed: int, index: Tensor, stream: int = 0) -> Tensor:
    """One key per example from the run's seed and the example's index (and, say, the number of the restart)."""
    signed = (seed + 2**63) % 2**64 - 2**63  # a seed may be any whole number
    base = _mix(torch.full_like(index, signed, dtype=torch.int64) * _GOLDEN + stream)
    return _mix(base + index.to(torch.int64) * _GOLDEN)


def keys_from(generator: torch.Generator | None, count: int, device: torch.device) -> Tensor:
    """Keys drawn from a torch generator, for callers without a seed and indices (training).

    Without a generator they are new each time, from the operating system and not from torch's global state.
    """
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    limit = 2**62
    shape, where = (count,), generator.device
    return torch.randint(-limit, limit, shape, generator=generator, dtype=torch.int64, device=where).to(device)


def uniform(key: Tensor, shape: Sequence[int], stream: Tensor | int = 0) -> Tensor:
    """U(0,1) of shape (B, *shape), strictly inside the interval; `stream` separates draws of the same example."""
    count = math.prod(shape)
    base = _mix(key + (torch.zeros_like(key) + stream + 1) * _GOLDEN)  # a tensor's product wraps, a number's does not
    counter = torch.arange(1, count + 1, device=key.device, dtype=torch.int64) * _GOLDEN
    bits = _shift(_mix(base[:, None] + counter), 41)  # 23 bits: with the half added still exact in float32
    return ((bits.float() + 0.5) * 2.0**-23).reshape(len(key), *shape)


def normal(key: Tensor, shape: Sequence[int], stream: Tensor | int = 0) -> Tensor:
    """N(0,1) of shape (B, *shape), by Box and Muller's transform of two uniforms."""
    both = uniform(key, (2, *shape), stream)
    return (-2 * both[:, 0].log()).sqrt() * (2 * math.pi * both[:, 1]).cos()


def integer(key: Tensor, high: int, stream: Tensor | int = 0) -> Tensor:
    """A whole number in 0…high−1 per example."""
    return (uniform(key, (1,), stream)[:, 0] * high).long().clamp_max(high - 1)
