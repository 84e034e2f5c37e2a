"""BAT, balance adversarial training (Sun et al., AAAI 2023): images on both sides of the boundary, and uniform targets.

    x^lc: the last iterate before the first misclassified one (the start where that is misclassified already)
    x^fa: the iterate that is misclassified for the (τ + 1)-th time                          each x_T if there is none
    min_θ (1/B) Σ w_y [ CE(z(x^lc), y) + β_y KL(p(x) ‖ p(x^fa)) + u (KL(p(x^lc) ‖ U) + KL(p(x^fa) ‖ U)) ]

Both come from TRADES' attack, KL away from p(x), each from its own start x + 0.001·N(0,1), clamped, as in the official
code; the defaults τ = 1, β = 6 and u = 1 are that code's. x_0 … x_{T−1} are tested, x_T is not. The network sees x^lc,
x^fa and x, in this order. The second attack of that code permutes the batch, which changes nothing. Training records
are those of x^fa. x^lc is computed in the loss, with the weights before the step; with adversarial weight perturbation
twice, therefore. In DAFA's table BAT raises the worst class's clean accuracy and lowers its robust accuracy.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.attack import Attack, Model, Rows
from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import Start
from classwise.core import rng
from classwise.core.losses import cross_entropy, kl
from classwise.core.spec import Natural, NonNegative
from classwise.core.threat import Ball, choose
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, ClassValues, Loss, State, craft, logits

PAPERS = ("sun2023",)


@dataclass(frozen=True, kw_only=True)
class Bat(Madry):
    """Fields of madry; beta: β; tau: τ, how many misclassified iterates x^fa leaves behind it; uniform: u."""

    start: Start = "gaussian"
    beta: ClassValues = 6.0
    tau: Natural = 1
    uniform: NonNegative = 1.0

    class_wise: ClassVar[tuple[str, ...]] = (*Madry.class_wise, "beta")

    def inner(self) -> Attack:
        return self.pgd(_FirstAdversarial, clamp=True, tau=self.tau)

    def last_clean(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        """x^lc, from a random start of its own."""
        own = dataclasses.replace(batch, key=rng.keys(1, batch.key))
        return craft(self.pgd(_LastClean, clamp=True), self.attacked(model, batch), own, state)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        images = [self.last_clean(model, batch, state), batch.adversarial, batch.x]
        if batch.joint:
            passed = model(torch.cat(images)).chunk(len(images))
            inside, beyond, clean = (z / state["temperature"][batch.y][:, None] for z in passed)
        else:
            inside, beyond, clean = (logits(model, x, batch, state) for x in images)
        natural = cross_entropy(inside, batch.y, smoothing=batch.smoothing)
        boundary = state["beta"][batch.y] * kl(clean, beyond)
        uniform = self.uniform * (from_uniform(inside) + from_uniform(beyond))
        return Loss(state["weight"][batch.y] * (natural + boundary + uniform), beyond)


def from_uniform(z: Tensor) -> Tensor:
    """KL(p ‖ U) = log C + Σ p log p."""
    log_p = F.log_softmax(z, 1)
    return (log_p.exp() * log_p).sum(1) + math.log(z.shape[1])


@dataclass(frozen=True)
class _LastClean(KlPgd):
    """kl_pgd that goes back to the iterate before the first misclassified one, and stays there."""

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        rows = super().begin(model, rows, ball)
        return {**rows, "before": rows["x_adv"], "done": torch.zeros_like(rows["y"], dtype=torch.bool)}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        moved = super().advance(model, rows, ball)
        done = rows["done"] | (moved["logits"].argmax(1) != rows["y"])
        x_adv = choose(done, rows["before"], moved["x_adv"])
        return {**moved, "x_adv": x_adv, "before": choose(done, rows["before"], rows["x_adv"]), "done": done}


@dataclass(frozen=True)
class _FirstAdversarial(KlPgd):
    """kl_pgd that stays at the iterate that is misclassified for the (τ + 1)-th time."""

    tau: int = 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        rows = super().begin(model, rows, ball)
        left = torch.full_like(rows["y"], self.tau)
        return {**rows, "left": left, "done": torch.zeros_like(rows["y"], dtype=torch.bool)}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        moved = super().advance(model, rows, ball)
        wrong = moved["logits"].argmax(1) != rows["y"]
        done = rows["done"] | (wrong & (rows["left"] == 0))
        left = rows["left"] - (wrong & ~done).long()
        return {**moved, "x_adv": choose(done, rows["x_adv"], moved["x_adv"]), "left": left, "done": done}
