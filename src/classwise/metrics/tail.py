"""Mean accuracy of the worst classes: the worst k, or the worst 20%.

tail = (1/k) Σ_{c among the k lowest} a_c, by default with k = ⌈0.2 m⌉ of the m classes that have examples: the
"20% tail" of Pethick et al., "Revisiting adversarial training for the worst-performing class", TMLR 2023. The paper's
class counts divide evenly and leave the rounding open; rounding up keeps at least one class. k = 1 is the worst class.
"""

from __future__ import annotations

import math

import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Array, Records
from classwise.metrics import accuracy
from classwise.metrics.metric import Shown

PAPERS = ("pethick2023",)
SHOWN = Shown(title="worst 20%", where=("gate",), unit="share", names=("tail20",))


def compute(records: Records, k: int | None = None, fraction: float = 0.2) -> float:
    """The mean of the `k` lowest class accuracies, or of the lowest `fraction` of them if `k` is not given."""
    return float(lowest(accuracy.seen(records), k, fraction).mean())


def of(accuracies: Array) -> float:
    """The mean of the lowest fifth of class accuracies, in any unit."""
    return float(lowest(accuracies).mean())


def lowest(values: Array, k: int | None = None, fraction: float = 0.2) -> Array:
    """The `k` lowest of the class accuracies, or the lowest `fraction` of them if `k` is not given, in order."""
    if not 0 < fraction <= 1:
        raise UserError(f"fraction must lie in (0, 1], such as 0.2; got {fraction:g}.")
    if k is None:
        k = math.ceil(round(fraction * len(values), 9))  # 0.07 · 100 is 7.000000000000001 in floating point
    if not 1 <= k <= len(values):
        raise UserError(f"k must lie between 1 and {len(values)}, the number of classes with examples; got {k}.")
    return np.sort(values)[:k]
