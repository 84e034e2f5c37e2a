"""Gain of the worst class weighed against the loss of the average, relative to a base run.

ρ = (W − W₀)/W₀ − (A₀ − A)/A₀, with W the lowest and A the mean class accuracy of the run, W₀ and A₀ those of the base
(Li & Liu, "WAT: Improve the Worst-class Robustness in Adversarial Training", AAAI 2023, equation 7). A rise of the
average counts for the run. NaN if a class of the base is never right: no gain can be measured against W₀ = 0.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import accuracy

PAPERS = ("li2023",)


def compute(records: Records, base: Records) -> float:
    run, start = accuracy.seen(records), accuracy.seen(base)
    return of(run.min(), run.mean(), start.min(), start.mean())


def of(worst: float, average: float, base_worst: float, base_average: float) -> float:
    """ρ from the lowest and the mean class accuracy of the run and of its base, all in one unit."""
    if base_worst == 0:
        return float("nan")
    return float((worst - base_worst) / base_worst - (base_average - average) / base_average)
