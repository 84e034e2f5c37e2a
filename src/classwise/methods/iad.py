"""IAD-I, introspective adversarial distillation (Zhu et al., ICLR 2022): a teacher is trusted as far as it is robust.

    x' = PGD(x; CE)        min_θ  (1/B) Σ w_y [ KL(p_T(x) ‖ p(x')) + (1 − α_i) KL(p(x) ‖ p(x')) ],   α_i = p_T(y|x'_i)^γ

p_T are the probabilities of a frozen robust teacher. γ = 0.1. The second term, the network's own clean answer where the
teacher errs on x', begins after 60 of 200 epochs; gradients flow through p(x) too. The attack is ARD's. Unlike ARD's
the divergences are sums over the classes, and T = 1. With the official code's α below 1 the two terms are multiplied by
it, the first also by T², and (1 − α) CE(z(x), y) is added. Departure: that code passes the clean images through the
network once more from then on, which only moves batch-norm's running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.core.losses import kl
from classwise.core.spec import Natural, NonNegative, Positive
from classwise.methods.ard import Ard
from classwise.methods.method import Batch

PAPERS = ("zhu2022",)


@dataclass(frozen=True, kw_only=True)
class Iad(Ard):
    """Fields of ard; power: γ; begin: epochs before the second term."""

    distillation_temperature: Positive = 1.0
    power: NonNegative = 0.1
    begin: Natural = 60

    def idle_epochs(self) -> int:
        return self.begin

    def teacher_term(self, z: Tensor, z_adv: Tensor, batch: Batch) -> Tensor:
        value = self.divergence(z_adv, batch)
        if batch.epoch < self.begin:
            return value
        believed = batch.teacher(batch.adversarial).softmax(1).gather(1, batch.y[:, None])[:, 0] ** self.power
        return value + (1 - believed) * kl(z, z_adv)
