"""Models: networks that return logits for images in [0,1], one file for each family, and weights from anywhere.

Every built-in network has `features(x)`, the penultimate vector, and `head`, the last linear layer, with
``model(x) == model.head(model.features(x))`` in eval mode.
"""

from __future__ import annotations

from classwise.models.check import check_model
from classwise.models.checkpoint import read_checkpoint, save_checkpoint
from classwise.models.loading import load_model
from classwise.models.reading import read_state
from classwise.models.registry import describe, names, usage
from classwise.models.weights import load_weights

__all__ = [
    "check_model",
    "describe",
    "load_model",
    "load_weights",
    "names",
    "read_checkpoint",
    "read_state",
    "save_checkpoint",
    "usage",
]
