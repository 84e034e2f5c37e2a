"""RSLAD, robust soft label distillation (Zi et al., ICCV 2021): a teacher's soft labels in the attack and both terms.

    x' = argmax KL(p_T(x) ‖ p(x'))        min_θ  (1/B) Σ w_y [ λ D(p_T(x), p(x')) + (1 − λ) D(p_T(x), p(x)) ]
    D(b, q) = (1/C) Σ_c b_c (log(b_c + 1e-5) − log q_c)

p_T are the probabilities of a frozen robust teacher; labels play no part. λ = 5/6. D is the official code's: a mean
over the C classes, with a constant that moves no gradient. That code multiplies the loss by 10 on CIFAR-100:
``weight = 10``. Adversarial images go through the network before the clean ones, as there. The training records have
the cross entropy of the clean images too, as `clean_loss`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import Start
from classwise.core.losses import cross_entropy
from classwise.core.spec import Share
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, TeacherName, both_logits, craft

PAPERS = ("zi2021",)


@dataclass(frozen=True, kw_only=True)
class Rslad(Madry):
    """Fields of madry; adversarial_share: λ."""

    start: Start = "gaussian"
    adversarial_share: Share = 5 / 6

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        return ("teacher",)

    def inner(self) -> Attack:
        return self.pgd(KlPgd)

    def targets(self, batch: Batch, state: State) -> tuple[Tensor, Tensor]:
        """The logits of the soft labels of the adversarial and of the clean images."""
        z = batch.teacher(batch.x)
        return z, z

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        soft, _ = self.targets(batch, state)
        return craft(self.inner(), self.attacked(model, batch), batch, state, columns={"clean_logits": soft})

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state, "adversarial")
        soft_adv, soft = self.targets(batch, state)
        value = self.adversarial_share * soft_kl(soft_adv, z_adv) + (1 - self.adversarial_share) * soft_kl(soft, z)
        return Loss(state["weight"][batch.y] * value, z_adv, {"clean_loss": cross_entropy(z, batch.y)})


def soft_kl(target: Tensor, z: Tensor) -> Tensor:
    """D(softmax(target), softmax(z)), from logits; the soft labels are constants."""
    b = target.detach().softmax(1)
    return (b * ((b + 1e-5).log() - F.log_softmax(z, 1))).mean(1)
