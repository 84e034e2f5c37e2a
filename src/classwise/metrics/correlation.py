"""Spearman's rank correlation of two columns of numbers, with an interval: do they grow together?

ρ            correlation of the ranks, ties sharing theirs
interval     tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3)))                                Bonett & Wright 2000

At ρ = ±1 that would have no width, however few the pairs: its inner end is then that of the next value there is, of one
pair of neighbours exchanged, 1 − 12 / (n (n² − 1)).
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from classwise.metrics.intervals import Array


def correlation(x: Array, y: Array, confidence: float = 0.95) -> tuple[float, float, float]:
    """Spearman's ρ and its interval; NaN where a side has one value only, no interval under four pairs."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    seen = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[seen], y[seen], int(seen.sum())
    if n < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan"), float("nan"), float("nan")
    rho = float(np.clip(stats.spearmanr(x, y).statistic, -1, 1))
    if n < 4:
        return rho, float("nan"), float("nan")
    inner = float(np.clip(rho, -1 + 12 / (n * (n**2 - 1)), 1 - 12 / (n * (n**2 - 1)))) if abs(rho) == 1 else rho
    half = special.ndtri((1 + confidence) / 2) * np.sqrt((1 + inner**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(inner) + np.array([-half, half]))
    return rho, -1.0 if rho == -1 else float(low), 1.0 if rho == 1 else float(high)
