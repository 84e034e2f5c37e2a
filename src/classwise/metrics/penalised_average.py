"""Mean of the class accuracies less a penalty for their disparity.

FP = ā − λ · (max_c a_c − min_c a_c) over the classes that have examples: GF-Score's fairness-penalised score (FP-GREAT;
Shah, Visavadiya and Padala 2026, arXiv 2604.12757) with class accuracies in the place of certified class scores. The
paper leaves λ ≥ 0 open; 0.5 is its code's. With λ = 0 it is `average`; it may be negative. The interval joins those of
`average` and `mcd`, each at half the error, so it is conservative.
"""

from __future__ import annotations

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy, average, mcd
from classwise.metrics.metric import Shown
from classwise.stats import intervals
from classwise.stats.intervals import Array

PAPERS = ("shah2026",)
PENALTY = 0.5


def compute(records: Records, penalty: float = PENALTY) -> float:
    """FP with λ = `penalty`."""
    return of(accuracy.seen(records), penalty)


def of(accuracies: Array, penalty: float = PENALTY) -> float:
    """FP of class accuracies given as fractions."""
    if not penalty >= 0:
        raise UserError(f"penalty must be at least 0, such as {PENALTY:g}; got {penalty:g}.")
    return float(accuracies.mean()) - penalty * mcd.of(accuracies)


def estimate(records: Records, confidence: float = 0.95) -> tuple[float, float, float]:
    """FP with the default λ and its interval."""
    each = (1 + intervals.check_confidence(confidence)) / 2
    mean, (_, least, most) = average.estimate(records, each), mcd.estimate(records, each)
    return compute(records), mean.low - PENALTY * most, mean.high - PENALTY * least


SHOWN = Shown(title="penalised", where=("gate",), unit="points", estimate=estimate)
