"""Records for the tests of the metrics, from labels and predictions or from a confusion matrix."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records


def build(label, prediction, class_names, *, index=None, probs=None, superclasses=None):
    label = np.asarray(label, dtype=np.int32)
    frame = pd.DataFrame(
        {
            "index": np.arange(len(label)) if index is None else index,
            "label": label,
            "attack": "pgd",
            "eps": 8 / 255,
            "prediction": np.asarray(prediction, dtype=np.int32),
            "confidence": 0.5,
            "true_prob": 0.5,
            "loss": 1.0,
            "distance": 8 / 255,
            "minimal": np.inf,
            "step": 20,
            "queries": 20,
        }
    )
    meta = Meta(class_names=tuple(class_names), superclasses=superclasses, attacks={"pgd": AttackInfo()})
    return Records(frame, meta, probs)


@pytest.fixture
def make():
    """make(label, prediction, class_names, **rest) -> Records of one attack."""
    return build


@pytest.fixture
def from_confusion():
    """from_confusion(counts, class_names=None, **rest) -> Records with that confusion matrix."""

    def make_records(counts, class_names=None, **rest):
        counts = np.asarray(counts)
        label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
        return build(label, prediction, class_names or [f"class {c}" for c in range(len(counts))], **rest)

    return make_records


@pytest.fixture
def from_correct(from_confusion):
    """from_correct(correct, support) -> Records; every error of a class goes to the next class."""

    def make_records(correct, support, class_names=None, **rest):
        correct, support = np.asarray(correct), np.broadcast_to(support, np.shape(correct))
        return from_confusion(
            np.diag(correct) + np.roll(np.diag(support - correct), 1, axis=1), class_names=class_names, **rest
        )

    return make_records
