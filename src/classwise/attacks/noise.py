"""Random points of the ball, without gradients: a baseline that every real attack must beat.

x'_k = Π(x + ε · u_k),   k = 1…draws,    u_k uniform in the ball, or random corners (linf) / the sphere (l2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from classwise.attacks.attack import Attack, Model, Rows
from classwise.core import rng
from classwise.core.spec import Steps
from classwise.core.threat import Ball, wide

PAPERS = ()  # ours, or common knowledge


@dataclass(frozen=True)
class Noise(Attack):
    """Fields: how many points are tried; whether inside the ball ("uniform") or on its boundary ("boundary")."""

    draws: Steps = 10
    where: Literal["uniform", "boundary"] = "uniform"

    needs_gradient = False

    @property
    def steps(self) -> int:
        return self.draws - 1  # `begin` makes the first point

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        x, eps = rows["x"], rows["eps"]
        key = rng.keys(0, rows["key"], stream=1) + rows["t"]
        if self.where == "uniform":
            x_adv = ball.sample(x, eps, key)
        else:
            x_adv = x + wide(eps, x) * ball.unit(ball.direction(key, x.shape[1:])).to(x.dtype)
        return {**rows, "x_adv": ball.project(x_adv, x, eps)}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        with torch.no_grad():
            z = model(rows["x_adv"])
        return {**self.begin(model, {**rows, "t": rows["t"] + 1}, ball), "logits": z}
