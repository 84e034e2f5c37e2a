"""TRIX (Medi, Jung and Keuper 2025, arXiv 2507.07768): DAFA with weaker, targeted attacks on the strong classes.

    S_ij = mean of p_j(x) over class i in the batch,  v_i = Σ_{j: S_jj > S_ii} S_ij S_jj − Σ_{j: S_jj < S_ii} S_ji S_ii
    v_y < mean of v over the batch:   x' = PGD(x; towards y_t),  y_t uniform over the other classes      (strong)
    else:                             x' = PGD(x; KL(p(x) ‖ p(x')))                                      (weak)

Loss, class weights W, radii W_y ε and steps W_y α are DAFA's (`dafa`). The paper's abstract says that strong classes
are attacked towards uniform targets and weak ones without a target, with class weights and radii of earlier work. The
rest is that of the published loss function (mixed_trades_loss) and script: DAFA's formula with the clean, eval-mode
probabilities of each batch decides which classes are strong, and W comes from epoch τ = 70 with λ = 1. The training
loop around it was not seen: that attacks are mixed from the first epoch on is our reading. The 1e-10 that it adds in
logarithms are left out. With several processes S and the mean are those of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Model, Rows
from classwise.attacks.pgd import Pgd, draw_target
from classwise.core.losses import cross_entropy, kl
from classwise.core.threat import Ball
from classwise.methods.batch_classes import class_means
from classwise.methods.dafa import Dafa
from classwise.methods.method import Batch, State, craft

PAPERS = ("medi2025trix", "lee2024")


@dataclass(frozen=True, kw_only=True)
class Trix(Dafa):
    """Fields of dafa."""

    batch_wise: ClassVar[bool] = True

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        attacked = self.attacked(model, batch)
        drawn = draw_target(batch.key, batch.y, torch.ones_like(state["weight"]))
        target = torch.where(self.strong(attacked, batch, state), drawn, -1)
        share = 0.25 if self.step is None else self.step / float(batch.eps.amax())
        return craft(self.pgd(_Mixed, step=None, share=share), attacked, batch, state, columns={"target": target})

    @torch.no_grad()
    def strong(self, model: Model, batch: Batch, state: State) -> Tensor:
        """Whose class is strong in this batch."""
        p = (model(batch.x) / state["temperature"][batch.y][:, None]).softmax(1)
        similarity, _ = class_means(p, batch, p.shape[1])
        v = vulnerability(similarity)[batch.y]
        return v < batch.average(v.mean())


def vulnerability(s: Tensor) -> Tensor:
    """v: what DAFA's weights would move by; that of a class without examples, whose row is 0, affects no other."""
    own = s.diagonal()
    gain = torch.where(own[:, None] < own, s * own, 0.0)
    return gain.sum(1) - gain.sum(0)


@dataclass(frozen=True)
class _Mixed(Pgd):
    """pgd towards the targets given, and away from the clean answer where there is none (−1); the step is a share of
    each example's radius."""

    share: float = 0.25

    def default_step(self, eps: Tensor) -> Tensor:
        return self.share * eps

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        with torch.no_grad():
            return super().begin(model, {**rows, "clean_logits": model(rows["x"])}, ball)

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        target = rows["target"]
        return torch.where(target < 0, kl(rows["clean_logits"], z), -cross_entropy(z, target.clamp_min(0)))
