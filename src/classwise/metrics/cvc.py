"""Class-wise variance of confidence: how peaked the predicted distribution is, per class.

CVC_k = (1 / N_k C) Σ_{i in class k} Σ_c (p_c^i − p̄^i)², p^i the predicted probabilities of image i and p̄^i their mean
(Tian et al., KDD 2021, Definition 5.1). Small values mean a smooth output, near the decision boundary. The paper does
not say whether clean or attacked images are meant; it is computed on the rows given. C is the number of the model's
outputs, absent classes included.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from classwise.core.errors import UserError
from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.stats import intervals

PAPERS = ("tian2021",)


def compute(records: Records, confidence: float = 0.95) -> PerClass:
    """The mean of each class, with Student's t interval (NaN for a class of fewer than two examples)."""
    records = records.single()
    confusion.require_classes(records, "label")
    if records.probs is None:
        raise UserError(
            f"cvc needs every class's probability, and the records of {records.attacks[0]} do not hold them. "
            "Audit again and keep the probabilities."
        )
    spread = records.probs.var(axis=1, dtype=np.float64)
    size = records.num_classes
    support = np.bincount(records.label, minlength=size)
    mean = intervals.ratio(np.bincount(records.label, spread, minlength=size), support)
    squares = np.bincount(records.label, (spread - mean[records.label]) ** 2, minlength=size)
    error = np.sqrt(intervals.ratio(intervals.ratio(squares, support - 1), support))
    alpha = 1 - intervals.check_confidence(confidence)
    margin = special.stdtrit(np.maximum(support - 1, 1), 1 - alpha / 2) * error
    return PerClass(
        values=mean, support=support, low=mean - margin, high=mean + margin, class_names=records.class_names
    )
