"""Numbers as people read them: the one place where a number becomes text, on terminal, page, notebook and figures.

A number is rounded once, from its full value: for a share the double 100·value, to the nearest, halves away from zero.
That is the rule of JavaScript's `toFixed`, so what the page's script and the charts write agrees with what is written
here. A share that is not 0 or 1 is never written as 0% or 100%; what is not defined is a dash.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

UNKNOWN = "–"
_LEVELS = 255  # of an 8-bit pixel


def fixed(value: float | None, digits: int, signed: bool = False) -> str:
    """A number with so many decimals, such as a coefficient; with its sign where it is a change."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    rounded = Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:+f}".replace("-", "−") if signed else f"{rounded:f}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share: 0.1825 as 18.3%."""
    text = _share(value, digits)
    return text if text == UNKNOWN else f"{text}%"


def interval(low: float | None, high: float | None) -> str:
    """An interval of a share: 4.9–19.2%."""
    ends = _share(low, 1), _share(high, 1)
    return UNKNOWN if UNKNOWN in ends else f"{ends[0]}–{ends[1]}%"


def points(difference: float | None) -> str:
    """A difference of two shares in percentage points, with its sign: +1.3."""
    return UNKNOWN if difference is None else fixed(100 * difference, 1, signed=True)


def distance(difference: float | None) -> str:
    """How far two shares are apart in percentage points, without a sign: 1.3."""
    return UNKNOWN if difference is None else fixed(100 * abs(difference), 1)


def p_value(p: float | None) -> str:
    """A p-value in a column of its own: 0.012, or <0.001."""
    return "<0.001" if p is not None and p < 0.001 else fixed(p, 3)


def p_equals(p: float | None) -> str:
    """A p-value in a sentence: p = 0.012, or p < 0.001."""
    text = p_value(p)
    return "p is not defined" if text == UNKNOWN else f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def probability(p: float | None) -> str:
    """A posterior probability with two decimals; it is never 0 or 1, whatever rounding made of it."""
    return {"0.00": "<0.01", "1.00": ">0.99"}.get(text := fixed(p, 2), text)


def level(confidence: float) -> str:
    """A confidence as it was given: 95%, 99.9%."""
    return f"{_plain(100 * Decimal(repr(float(confidence))))}%"


def alpha(confidence: float) -> str:
    """The error that a confidence leaves: 0.05."""
    return _plain(1 - Decimal(repr(float(confidence))))


def radius(eps: float) -> str:
    """A radius as people write it: 0.3 and 0.031 as they are, 8/255 where it is one, else four digits."""
    short, levels = f"{eps:.3g}", round(_LEVELS * eps)
    if math.isclose(eps, float(short), rel_tol=1e-6):
        return short
    # A distance measured in float32 is off by some 1e-7, and that is not a level.
    return f"{levels}/{_LEVELS}" if levels and math.isclose(_LEVELS * eps, levels, abs_tol=1e-4) else f"{eps:.4g}"


def duration(seconds: float) -> str:
    """A time in the unit people would choose: 1.5 s, 45 s, 12 min, 3.2 h, 4 days; ? where it is unknown."""
    if math.isnan(seconds):
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3 * 86400 else f"{seconds / 86400:,.0f} days"


def memory(megabytes: float) -> str:
    """An amount of memory: 512 MB, 3.4 GB; ? where it is unknown."""
    if math.isnan(megabytes):
        return "?"
    return f"{megabytes / 1024:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"


def listed(texts: Sequence[str], most: int = 5) -> str:
    """The first few, and how many more there are: cat, dog and 3 more."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _share(value: float | None, digits: int) -> str:
    if value is None:
        return UNKNOWN
    text, least = fixed(100 * value, digits), Decimal(1).scaleb(-digits)
    if text == fixed(0, digits) and value > 0:
        return f"<{least}"
    return f">{100 - least}" if text == fixed(100, digits) and value < 1 else text


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
