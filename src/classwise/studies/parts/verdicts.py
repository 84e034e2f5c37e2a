"""When a claim held: if its interval says so, and not if it says the contrary; anything else is not decided."""

from __future__ import annotations

from classwise.studies.frame.outcome import Verdict

#: p-values below this speak.
LEVEL = 0.05


def exceeds(low: float, high: float, threshold: float = 0.0) -> Verdict:
    """Whether something with this interval is above the threshold; NaN decides nothing."""
    return "held" if low > threshold else "did not hold" if high < threshold else "not decided here"


def falls_short(low: float, high: float, threshold: float = 0.0) -> Verdict:
    """Whether something with this interval is below the threshold."""
    return exceeds(-high, -low, -threshold)


def all_held(*verdicts: Verdict) -> Verdict:
    """Of a claim with several parts: one that did not hold decides, and it held only if all did."""
    if "did not hold" in verdicts:
        return "did not hold"
    return "held" if set(verdicts) == {"held"} else "not decided here"
