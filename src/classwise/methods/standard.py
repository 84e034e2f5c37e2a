"""Standard training: empirical risk on clean images, the baseline without an attack.

min_θ  (1/B) Σ w_y CE(z(x), y)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from classwise.core.losses import cross_entropy
from classwise.methods.method import Batch, Loss, Method, State, logits

PAPERS = ()  # ours, or common knowledge


@dataclass(frozen=True, kw_only=True)
class Standard(Method):
    """No fields of its own."""

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z = logits(model, batch.x, batch, state)
        return Loss(state["weight"][batch.y] * cross_entropy(z, batch.y, smoothing=batch.smoothing), z)
