"""PGD on the margin of the logits, the "CW" of Li & Liu (WAT, 2023) and of TRADES-family evaluations.

    x_{t+1} = Π(x_t + α · sign ∇ −max(z_y − max_{j≠y} z_j + κ, 0)),    κ = 50

This is PGD with Carlini & Wagner's loss, not their attack with binary search. Where the margin already exceeds κ
in the attacker's favour the loss is flat, as in the official code. With a target t the loss that is descended is
max(max_{j≠t} z_j − z_t + κ, 0), Carlini & Wagner's (2017) f₆.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.attacks.pgd import Pgd
from classwise.core.losses import margin
from classwise.core.spec import NonNegative, Steps

PAPERS = ("madry2018", "carlini2017")


@dataclass(frozen=True)
class MarginPgd(Pgd):
    """Fields of pgd, and the confidence κ by which the margin is exceeded before the loss goes flat."""

    steps: Steps = 30
    confidence: NonNegative = 50.0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return -(self.confidence - margin(z, y)).clamp_min(0)

    def target_loss(self, z: Tensor, target: Tensor) -> Tensor:
        return (margin(z, target) + self.confidence).clamp_min(0)
