"""ARD, adversarially robust distillation (Goldblum et al., AAAI 2020): adversarial images get a teacher's soft labels.

    x' = PGD(x; CE)       min_θ  (1/B) Σ w_y [ α T² KL(softmax(z_T(x)/T) ‖ softmax(z(x')/T)) / C + (1 − α) CE(z(x), y) ]

z_T are the logits of a frozen robust teacher, in eval mode and of clean images. T = 30 and α = 1, so labels count in
the attack only. As in the official code the divergence is averaged over the C classes too; the network is attacked in
train mode from a uniform start that is not clamped to [0,1]; and clean images go through it after the adversarial ones,
with α = 1 only for batch-norm's running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.pgd import Pgd
from classwise.core.losses import cross_entropy, kl
from classwise.core.spec import Positive, Share
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, TeacherName, both_logits

PAPERS = ("goldblum2020",)


@dataclass(frozen=True, kw_only=True)
class Ard(Madry):
    """Fields of madry; distillation_temperature: T; alpha: α, the share of the teacher."""

    mode: Literal["eval", "train"] = "train"
    distillation_temperature: Positive = 30.0
    alpha: Share = 1.0

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        return ("teacher",)

    def inner(self) -> Attack:
        return self.pgd(Pgd, clamp=False)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state, "adversarial")
        value = self.alpha * self.teacher_term(z, z_adv, batch)
        if self.alpha < 1:
            value = value + (1 - self.alpha) * cross_entropy(z, batch.y, smoothing=batch.smoothing)
        return Loss(state["weight"][batch.y] * value, z_adv)

    def teacher_term(self, z: Tensor, z_adv: Tensor, batch: Batch) -> Tensor:
        """What α multiplies, for each example."""
        return self.divergence(z_adv, batch) / z_adv.shape[1]

    def divergence(self, z_adv: Tensor, batch: Batch) -> Tensor:
        """T² KL(softmax(z_T(x)/T) ‖ softmax(z(x')/T))."""
        t = self.distillation_temperature
        return t**2 * kl(batch.teacher(batch.x) / t, z_adv / t)
