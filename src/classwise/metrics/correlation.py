"""Spearman's rank correlation of two columns of numbers, with an interval: do they grow together?

ρ            correlation of the ranks, ties sharing theirs
interval     tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3)))                                Bonett & Wright 2000
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
    half = special.ndtri((1 + confidence) / 2) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    with np.errstate(divide="ignore"):  # ρ = ±1 has an interval of no width
        low, high = np.tanh(np.arctanh(rho) + np.array([-half, half]))
    return rho, float(low), float(high)
