"""MART (Wang et al., ICLR 2020): a boosted loss on x', and a KL term weighted by the clean uncertainty.

    x' = PGD(x; CE)
    min_θ  (1/B) Σ w_y [ BCE(x', y) + β_y KL(p(x) ‖ p(x')) · (1 − p_y(x)) ]
    BCE = CE(z(x'), y) − log(1 − max_{k≠y} p_k(x'))

β is the paper's λ: 5 in the official ResNet-18 script (the default), 6 in its WideResNet-34-10 one. Gradients flow
through every probability. The small constants that keep the logarithms finite are the official code's: 1.0001 and 1e-12
in the boosted term, 1e-12 in the KL, 1.0000001 in its weight. So is the start, which is not clamped to [0,1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.pgd import Start
from classwise.core.losses import best_other, cross_entropy
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, ClassValues, Loss, State, both_logits

PAPERS = ("wang2020mart",)


@dataclass(frozen=True, kw_only=True)
class Mart(Madry):
    """Fields of madry, and β, the paper's λ."""

    start: Start = "gaussian"
    beta: ClassValues = 5.0

    class_wise: ClassVar[tuple[str, ...]] = (*Madry.class_wise, "beta")

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state)
        boosted = boosted_cross_entropy(z_adv, batch.y, batch.smoothing)
        value = boosted + state["beta"][batch.y] * weighted_kl(z, z_adv, batch.y)
        return Loss(state["weight"][batch.y] * value, z_adv)


def boosted_cross_entropy(z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """CE − log(1 − max_{k≠y} p_k): also lower the probability of the strongest other class."""
    return cross_entropy(z, y, smoothing=smoothing) - (1.0001 - best_other(F.softmax(z, 1), y) + 1e-12).log()


def weighted_kl(z: Tensor, z_adv: Tensor, y: Tensor) -> Tensor:
    """KL(p ‖ p') · (1 − p_y)."""
    log_p = F.log_softmax(z, 1)
    p = log_p.exp()
    divergence = (p * (log_p - (F.softmax(z_adv, 1) + 1e-12).log())).sum(1)
    return divergence * (1.0000001 - p.gather(1, y[:, None])[:, 0])
