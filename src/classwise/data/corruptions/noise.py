"""Noise: Gaussian, shot, impulse and speckle, drawn independently for every value."""

from __future__ import annotations

import functools

import numpy as np

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes


def gaussian_noise(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """x + N(0, σ²)."""
    scale = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return to_bytes(images / 255 + chance.normal(*images.shape[1:], scale=scale))


def shot_noise(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Poisson(c·x)/c: light counted in c quanta."""
    quanta = (500, 250, 100, 75, 50)[severity - 1]
    table = _poisson_table(quanta)
    # Row v of the table lies in [v, v+1], so a single search of the whole inverts every distribution.
    found = np.searchsorted(table.reshape(-1), chance.uniform(*images.shape[1:]) + images)
    return to_bytes((found - images.astype(np.int64) * table.shape[1]) / quanta)


@functools.cache
def _poisson_table(quanta: int) -> Doubles:
    """v + P(Poisson(quanta·v/255) ≤ k) for every byte v and every count k of non-negligible probability."""
    from scipy.stats import poisson  # here, because it takes longer to import than to use

    counts = np.arange(quanta + 12 * int(quanta**0.5) + 12)
    values = np.arange(256)[:, None]
    return np.asarray(values + poisson.cdf(counts, quanta * values / 255), dtype=np.float64)


def impulse_noise(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """A share of the values becomes 0 or 1, as likely the one as the other."""
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    shape = images.shape[1:]
    salt_or_pepper = chance.uniform(*shape, stream=1) < 0.5
    return to_bytes(np.where(chance.uniform(*shape) < amount, salt_or_pepper, images / 255))


def speckle_noise(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """x + x·N(0, σ²)."""
    scale = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    x = images / 255
    return to_bytes(x + x * chance.normal(*images.shape[1:], scale=scale))
