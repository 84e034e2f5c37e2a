"""Confidence intervals of proportions, vectorised over classes.

wilson   (k + z²/2 ± z √(k(n−k)/n + z²/4)) / (n + z²),  z = Φ⁻¹(1 − α/2)                    Wilson 1927
exact    [B⁻¹(α/2; k, n−k+1), B⁻¹(1−α/2; k+1, n−k)], B⁻¹ the beta quantile       Clopper & Pearson 1934
sidak    per-class confidence (1−α)^(1/m) makes m independent intervals simultaneous           Šidák 1967

Wilson's mean coverage is close to 1−α and is the better description of one class; the exact interval never covers less
than 1−α and is the one to build guarantees on. Each interval is equal-tailed, so each end taken alone is a one-sided
bound at α/2. A class without examples has NaN bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from classwise.core.errors import UserError, lookup

Array = npt.NDArray[Any]
Interval = Literal["wilson", "exact"]


@dataclass(frozen=True)
class Estimate:
    """One proportion: its value, its interval, and the number of examples behind it."""

    value: float
    low: float
    high: float
    support: int


def ratio(part: Array, whole: Array) -> Array:
    """part / whole, NaN where the whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64))
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))


def bounds(
    correct: Array, support: Array, confidence: float = 0.95, interval: Interval = "wilson"
) -> tuple[Array, Array]:
    """The low and high ends for `correct` successes out of `support`, element by element."""
    ends = lookup("interval", interval, _INTERVALS)
    alpha = 1 - check_confidence(confidence)
    correct, support = np.broadcast_arrays(np.asarray(correct, dtype=np.float64), np.asarray(support, dtype=np.float64))
    low, high = np.full(support.shape, np.nan), np.full(support.shape, np.nan)
    seen = support > 0
    low[seen], high[seen] = ends(correct[seen], support[seen], alpha)
    # Exactly 0 and 1 where rounding would leave 1e-18 or push past the end.
    low[seen & (correct == 0)] = 0.0
    high[seen & (correct == support)] = 1.0
    return low, high


def sidak(confidence: float, m: int) -> float:
    """The confidence each of `m` independent intervals needs to be simultaneous at `confidence`.

    Exact here, and a little shorter than Bonferroni: classes share no example, so given the class sizes their counts
    of correct examples are independent.
    """
    return float(check_confidence(confidence) ** (1 / max(m, 1)))


def check_confidence(confidence: float) -> float:
    """`confidence` if it lies strictly between 0 and 1; otherwise an error."""
    if not 0 < confidence < 1:
        remedy = f" Did you mean {confidence / 100:g}?" if 1 < confidence < 100 else ""
        raise UserError(f"confidence must lie between 0 and 1, such as 0.95; got {confidence:g}.{remedy}")
    return confidence


POWER = 0.8


def images_needed(first: float, second: float, confidence: float = 0.95, power: float = POWER) -> float:
    """Images of each of two classes for a two-sided test of their accuracies a and b to have the given power.

        n = ( z_{1−α/2} √(2 m (1 − m)) + z_{power} √(a (1 − a) + b (1 − b)) )² / (a − b)²,   m = (a + b)/2

    (Fleiss, Statistical Methods for Rates and Proportions, 1981, without continuity correction), rounded up; infinite
    if a = b.
    """
    if not 0 < power < 1:
        raise UserError(f"power must lie between 0 and 1, such as 0.8; got {power:g}.")
    if first == second:
        return math.inf
    mean = (first + second) / 2
    under_null = special.ndtri(0.5 + confidence / 2) * math.sqrt(2 * mean * (1 - mean))
    spread = special.ndtri(power) * math.sqrt(first * (1 - first) + second * (1 - second))
    return math.ceil(((under_null + spread) / (first - second)) ** 2)


def half_width(support: int, confidence: float = 0.95) -> float:
    """Half the length of Wilson's interval of an accuracy of 50%, where it is longest; of any other it is shorter."""
    low, high = bounds(np.array(support / 2), np.array(support), confidence)
    return float(high - low) / 2


def images_for(width: float, confidence: float = 0.95) -> int:
    """The fewest images for which `half_width` is at most `width`.

    At 50% Wilson's half width is z/(2√(n + z²)), so n = z²(1/(4·width²) − 1), rounded up.
    """
    z = float(special.ndtri(0.5 + check_confidence(confidence) / 2))
    return max(math.ceil(z**2 * (1 / (4 * width**2) - 1)), 1)


def _wilson(correct: Array, support: Array, alpha: float) -> tuple[Array, Array]:
    z = -special.ndtri(alpha / 2)
    centre = correct + z**2 / 2
    spread = z * np.sqrt(correct * (support - correct) / support + z**2 / 4)
    return (centre - spread) / (support + z**2), (centre + spread) / (support + z**2)


def _exact(correct: Array, support: Array, alpha: float) -> tuple[Array, Array]:
    wrong = support - correct
    # The beta distribution needs positive parameters; the ends replaced by 1 here are set by `bounds`.
    low = special.betaincinv(np.maximum(correct, 1), wrong + 1, alpha / 2)
    high = special.betainccinv(correct + 1, np.maximum(wrong, 1), alpha / 2)
    return low, high


_INTERVALS = {"wilson": _wilson, "exact": _exact}
