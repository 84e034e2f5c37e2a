"""Projected gradient descent (Madry et al., ICLR 2018): the standard white-box attack.

    x_0     = Π(x + U(−ε, ε))
    x_{t+1} = Π(x_t + α · sign ∇ CE(z(x_t), y))          (for l2: ∇/‖∇‖₂ instead of the sign)

Π projects into the ε-ball around x, then into [0,1]. A targeted attack descends CE(z, t) instead. Departure: the
random start is clamped to [0,1] before the first gradient, as Madry's code does and TRADES' does not (`clamp=false`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, possibly, value_and_gradient
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.spec import Count, Natural, Positive, Steps
from classwise.core.threat import Ball

PAPERS = ("madry2018",)

Start = Literal["uniform", "gaussian", "none"]

_TARGET = 2  # stream of an example's random target; its start is drawn from streams 0 and 1


@dataclass(frozen=True)
class Pgd(Attack):
    """Fields: number of steps; step size α (default ε/4); restarts; the random start; a target; EoT draws.

    start: "uniform" draws from the whole ball (Madry), "gaussian" adds 0.001·N(0,1) (TRADES), "none" starts at x.
    target: a class number, "random", "likely" (the strongest wrong logit) or "unlikely"; none is untargeted.
            An example of the target class itself has no target and stays where it is. Rows that have a column
            `target` already (`craft` with given columns) keep it; −1 there is an untargeted attack on that example.
    eot: gradients averaged over this many calls, for models that are randomised.
    """

    steps: Steps = 20
    step: Positive | None = None
    restarts: Count = 1
    start: Start = "uniform"
    clamp: bool = True
    target: Natural | Literal["random", "likely", "unlikely"] | None = None
    eot: Count = 1

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """What is ascended, per example."""
        return cross_entropy(z, y)

    def target_loss(self, z: Tensor, target: Tensor) -> Tensor:
        """What is descended instead where there is a target."""
        return self.loss(z, target)

    def default_step(self, eps: Tensor) -> Tensor:
        return eps / 4

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        x_adv = random_start(rows["x"], rows["eps"], rows["key"], ball, self.start)
        if self.clamp:
            x_adv = ball.project(x_adv, rows["x"], rows["eps"])
        if self.target is not None and "target" not in rows:
            rows = {**rows, "target": choose_target(model, rows, self.target)}
        return {**rows, "x_adv": x_adv}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        x, x_adv, eps = rows["x"], rows["x_adv"], rows["eps"]
        size = self.default_step(eps) if self.step is None else torch.full_like(eps, self.step)
        if "target" in rows:
            size = size * (rows["target"] != rows["y"])
        z, g = value_and_gradient(model, x_adv, lambda z: self.objective(z, rows), self.eot)
        x_next = ball.project(ball.step(x_adv, g, size), x, eps)
        return {**rows, "x_adv": x_next, "logits": z, "t": rows["t"] + 1}

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        """What is ascended, per example, towards the target where there is one."""
        if "target" not in rows:
            return self.loss(z, rows["y"])
        if isinstance(self.target, int) and self.target >= z.shape[1]:
            raise UserError(f"target {self.target} is not a class: the model has {z.shape[1]}, counted from 0.")
        target = rows["target"]
        towards = -self.target_loss(z, target.clamp_min(0))
        return torch.where(target < 0, self.loss(z, rows["y"]), towards) if possibly(target < 0) else towards


def random_start(x: Tensor, eps: Tensor, key: Tensor, ball: Ball, style: Start) -> Tensor:
    """x, x + 0.001·N(0,1), or a uniformly random point of the ε-ball; not clamped."""
    if style == "none":
        return x.clone()
    if style == "gaussian":
        return x + 0.001 * rng.normal(key, x.shape[1:]).to(x.dtype)
    return ball.sample(x, eps, key)


def choose_target(model: Model, rows: Rows, target: int | str) -> Tensor:
    """Each example's target class; equal to its label where it has none."""
    y = rows["y"]
    if isinstance(target, int):
        return torch.full_like(y, target)
    with torch.no_grad():
        z = model(rows["x"])
    own = torch.zeros_like(z, dtype=torch.bool).scatter(1, y[:, None], True)
    if target == "random":
        shift = 1 + rng.integer(rows["key"], z.shape[1] - 1, _TARGET)
        return (y + shift) % z.shape[1]
    if target == "likely":
        return z.masked_fill(own, float("-inf")).argmax(1)
    return z.masked_fill(own, float("inf")).argmin(1)


def draw_target(key: Tensor, y: Tensor, probabilities: Tensor) -> Tensor:
    """A class for each example, drawn by the given probabilities of the classes but never the example's own: as if a
    draw equal to the label were repeated. Where no other class has any probability they are all equally likely.

    The draw belongs to the example's key, so it does not depend on the batch that the example is in. `key` is what
    `craft` is given: the numbers that it makes of it are not those of the example's augmentation.
    """
    others = torch.ones(len(y), len(probabilities), device=y.device).scatter(1, y[:, None], 0)
    wanted = others * probabilities.to(others)
    below = torch.where(wanted.sum(1, keepdim=True) > 0, wanted, others).cumsum(1)
    at = rng.uniform(rng.keys(0, key), (1,), _TARGET) * below[:, -1:] * (1 - 2**-22)  # below the sum in any rounding
    return (below <= at).sum(1)
