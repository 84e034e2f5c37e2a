"""TRADES (Zhang et al., ICML 2019): clean accuracy plus stability of the prediction inside the ball.

    x' = argmax KL(p(x) ‖ p(x'))          min_θ  (1/B) Σ w_y [ CE(z(x), y) + β_y KL(p(x) ‖ p(x')) ]

Gradients flow through the clean probabilities too. β is one number, or one per class (Tian et al., KDD 2021, §6.1:
``beta = {dog = 0.5}`` lowers dog's). Departure: the official code passes the clean batch through the network twice in
train mode (clean, adversarial, clean again), which only changes how often batch-norm's running statistics see
it; `passes=3` does the same, and `passes=4` sees the adversarial one again too, as csr's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import Start
from classwise.core.losses import cross_entropy, kl
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, ClassValues, Loss, State, both_logits

PAPERS = ("zhang2019",)


@dataclass(frozen=True, kw_only=True)
class Trades(Madry):
    """Fields of madry, and β. passes: how often batch-norm sees a batch in train mode; the official code's are 3."""

    start: Start = "gaussian"
    beta: ClassValues = 6.0
    passes: Literal[2, 3, 4] = 2

    class_wise: ClassVar[tuple[str, ...]] = (*Madry.class_wise, "beta")

    #: What goes through the network first; batch-norm's running statistics depend on it, the loss does not.
    first_pass: ClassVar[Literal["clean", "adversarial"]] = "clean"

    def inner(self) -> Attack:
        return self.pgd(KlPgd)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = self.both_logits(model, batch, state)
        natural = cross_entropy(z, batch.y, smoothing=batch.smoothing)
        return Loss(state["weight"][batch.y] * (natural + state["beta"][batch.y] * kl(z, z_adv)), z_adv)

    def both_logits(self, model: nn.Module, batch: Batch, state: State) -> tuple[Tensor, Tensor]:
        """z(x)/T_y and z(x')/T_y, by as many passes through the network as asked for."""
        found = both_logits(model, batch, state, self.first_pass)
        with torch.no_grad():
            for images in (batch.x, batch.adversarial)[: self.passes - 2]:
                model(images)
        return found
