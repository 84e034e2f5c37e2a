"""Accuracy over all examples, with an interval.

a = #{examples predicted correctly} / #{examples}. The interval takes the examples as drawn independently from one
population; where the class sizes were fixed beforehand it is slightly wider than needed.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown
from classwise.stats import intervals
from classwise.stats.intervals import Estimate, Interval

PAPERS = ("wilson1927",)
SHOWN = Shown(title="overall", where=("gate",), unit="share", names=("accuracy",))


def compute(records: Records, interval: Interval = "wilson", confidence: float = 0.95) -> Estimate:
    correct, support = (total.sum() for total in accuracy.counts(records))
    low, high = intervals.bounds(correct, support, confidence, interval)
    return Estimate(float(correct / support), float(low), float(high), int(support))
