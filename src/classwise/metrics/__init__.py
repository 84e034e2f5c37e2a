"""Metrics: each file is one function of the records of one attack, and nothing here needs torch.

The module's name is the metric's public name and its `compute` is the metric. Accuracies are fractions, CV is in
percent², a class without examples is NaN and does not count, and a number that is not defined is NaN.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.records import Records
from classwise.core.registry import Registry
from classwise.metrics import (
    accuracy,
    average,
    confound,
    confusion,
    cv,
    mcd,
    overall,
    p_worst,
    superclass,
    symmetry,
    tail,
    vulnerable,
    worst,
)
from classwise.metrics.metric import Metric, Place, Shown

_REGISTRY = Registry(
    kind="metric",
    plural="metrics",
    package=__name__,
    functions=("compute",),
    given=("records",),
    expected="a function of records",
)
names, describe = _REGISTRY.names, _REGISTRY.describe
papers, usage = _REGISTRY.papers, _REGISTRY.usage


def find(name: str) -> Metric:
    """The metric of that name, with how it is shown."""
    found = _REGISTRY.find(name)
    shown = found.get("SHOWN") or Shown(title=name.rpartition(":")[2])
    of = found.get("of") if name in names() else None
    is_of_classes = of is not None and next(iter(inspect.signature(of).parameters)) == "accuracies"
    return Metric(name, found.object, shown, of if is_of_classes else None)


def shown(place: Place, besides: Sequence[str] = ()) -> list[Metric]:
    """The metrics that say they are shown there, and those named besides."""
    declared = [find(name) for name in names() if (how := _REGISTRY.find(name).get("SHOWN")) and place in how.where]
    return [*declared, *(find(name) for name in besides if name not in {each.name for each in declared})]


def by_class(records: Records, confidence: float = 0.95) -> pd.DataFrame:
    """The audit's main table, one row per class in class order.

    Columns: class, n, correct, accuracy with its Wilson interval low and high (each class by itself), p_worst,
    confused_with (the confound class, None if there is none) and confused_share (its share of the class's errors).
    """
    values = accuracy.compute(records, confidence=confidence)
    correct, support = accuracy.counts(records)
    confounds = confound.compute(records)
    return pd.DataFrame(
        {
            "class": values.class_names,
            "n": support,
            "correct": correct,
            "accuracy": values.values,
            "low": values.low,
            "high": values.high,
            "p_worst": p_worst.probabilities(correct, support),
            "confused_with": pd.Series(confounds.names, dtype=object),
            "confused_share": confounds.share,
        }
    )


def summary(records: Records, confidence: float = 0.95) -> dict[str, Any]:
    """The records of one attack as one JSON-ready dictionary; what is undefined is None.

    `worst` holds every class of the lowest accuracy and the interval for the lowest true accuracy; `superclass`
    is there if the records name superclasses.
    """
    total, lowest = overall.compute(records, confidence=confidence), worst.compute(records, confidence=confidence)
    result = {
        "accuracy": total.value,
        "accuracy_low": total.low,
        "accuracy_high": total.high,
        "average": average.compute(records),
        "by_class": by_class(records, confidence).to_dict("records"),
        "worst": {
            "class": lowest.name,
            "classes": list(lowest.tied),
            "accuracy": lowest.value,
            "low": lowest.low,
            "high": lowest.high,
        },
        "cv": cv.compute(records),
        "mcd": mcd.compute(records),
        "tail20": tail.compute(records),
        "vulnerable": list(vulnerable.compute(records).vulnerable),
        "confusion": confusion.stored(confusion.compute(records)),
        "symmetry": symmetry.compute(records),
    }
    if records.meta.superclasses:
        flips = superclass.compute(records, confidence)
        result["superclass"] = {
            "errors": flips.errors,
            "inside": flips.inside,
            "across": flips.across,
            "by_class": flips.by_class.to_frame().to_dict("records"),
        }
    return {key: value if key == "confusion" else _plain(value) for key, value in result.items()}


def _plain(value: Any) -> Any:
    """The same value in types JSON knows, NaN as None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
