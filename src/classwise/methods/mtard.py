"""MTARD, multi-teacher adversarial distillation (Zhao et al., ECCV 2022): a robust teacher and one for clean images.

    x' = PGD(x; CE)        min_θ  (1/B) Σ w_y [ (1 − v) L_adv + v L_nat ]
    L_adv = D(p_T(x'), p(x')),   L_nat = D(p_N(x), p(x))                                          D as in rslad
    v ← v − η (v − r_nat/(r_adv + r_nat)),   r = mean L / mean L of the first batch,   with every batch; first v = 1/2

p_T and p_N are the probabilities of the frozen teachers, the robust one of the adversarial images. The larger of the
two relative losses gets more weight; v is moved by a batch before that batch's loss is made. η = 0.025, a tenth of it
after each of the epochs 215, 260 and 285 (of 300), with the learning rate. The means are those of the weighted losses.
As in the official code x' starts from 0.001·N(0,1) in eval mode, and adversarial images go through the network before
the clean ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from classwise.attacks.pgd import Start
from classwise.core.spec import Count, Share
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, TeacherName, both_logits
from classwise.methods.rslad import soft_kl

PAPERS = ("zhao2022",)


@dataclass(frozen=True, kw_only=True)
class Mtard(Madry):
    """Fields of madry; rate: η; drops: the epochs after which it falls to a tenth."""

    start: Start = "gaussian"
    rate: Share = 0.025
    drops: tuple[Count, ...] = (215, 260, 285)

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        return ("teacher", "teacher_clean")

    def init(self, class_names: Sequence[str]) -> State:
        zero = torch.zeros(())  # of a first loss: there is none yet
        return {**super().init(class_names), "clean_share": zero + 0.5, "first_adv": zero, "first_clean": zero}

    def clean_target(self, batch: Batch) -> Tensor:
        """The logits of the soft labels of the clean images."""
        return batch.teacher_clean(batch.x)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state, "adversarial")
        w = state["weight"][batch.y]
        adv, clean = w * soft_kl(batch.teacher(batch.adversarial), z_adv), w * soft_kl(self.clean_target(batch), z)
        v = self._balanced(batch, state, adv, clean)["clean_share"]
        return Loss((1 - v) * adv + v * clean, z_adv, {"adv_part": adv, "clean_part": clean})

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        return self._balanced(batch, state, loss.columns["adv_part"], loss.columns["clean_part"])

    def _balanced(self, batch: Batch, state: State, adv: Tensor, clean: Tensor) -> State:
        """The state with v moved by the two losses of a batch, and with the first losses where it had none."""
        means = batch.average(torch.stack([adv.detach().mean(), clean.detach().mean()])).to(state["clean_share"])
        known = torch.stack([state["first_adv"], state["first_clean"]])
        first = torch.where(known > 0, known, means)
        r_adv, r_clean = means / first
        rate, v = dropped(self.rate, self.drops, batch.epoch), state["clean_share"]
        v = v - rate * (v - r_clean / (r_adv + r_clean))
        return {**state, "clean_share": v, "first_adv": first[0], "first_clean": first[1]}


def dropped(rate: float, drops: Sequence[int], epoch: float) -> float:
    """The rate, a tenth of it after each of the epochs in `drops` that are done."""
    return rate * 0.1 ** sum(epoch >= done for done in drops)
