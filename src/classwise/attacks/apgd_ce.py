"""Auto-PGD on cross entropy (Croce and Hein, ICML 2020): PGD with momentum that sets its own step size.

    x_0     = Π(x + ε · u/‖u‖),    u uniform in [−1,1]^d (for l2: Gaussian)
    v_{t+1} = Π(x_t + η · sign ∇f(x_t))          (for l2: ∇/‖∇‖₂ instead of the sign)
    x_{t+1} = Π(x_t + a (v_{t+1} − x_t) + (1 − a)(x_t − x_{t−1})),    a = 0.75, in the first step 1

η begins at 2ε. The iterations are cut into windows, the first of 22 %, each 3 % shorter than the one before, none
below 6 %. At the end of a window of k iterations η is halved, and the search continues from the best point so far, if

    1.  f rose in at most ρk of the window's steps, or
    2.  η was not halved at the last such check, and the best f has not grown since.

The result is the point of largest f. One gradient more than there are iterations: of x_0 too.

Where the paper and the authors' code differ this follows the code: condition 1 is ≤, not <, and a rise is always over
the loss evaluated last, also after a return to the best point. Departures from the code: it compares the first loss
with zero instead of f(x_0), which for cross entropy always counts as a rise; and of several EoT draws it compares the
last one's loss, here their mean.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, device_table, possibly, value_and_gradient
from classwise.core.losses import cross_entropy
from classwise.core.spec import Count, Share, Steps
from classwise.core.threat import Ball, choose, wide

PAPERS = ("croce2020autoattack",)

_MOMENTUM = 0.75  # the paper's α: the share of the gradient step against that of the last move


@dataclass(frozen=True)
class Apgd(Attack):
    """Auto-PGD on whatever `objective` says.

    iterations: steps after the random start; rho: ρ of condition 1; eot: gradients averaged over this many calls.
    start: "random" is a random direction scaled to the radius, "none" the image itself.
    """

    iterations: Steps = 100
    rho: Share = 0.75
    start: Literal["random", "none"] = "random"
    eot: Count = 1

    @property
    def steps(self) -> int:
        return self.iterations + 1

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        """f, what is ascended, per example."""
        return cross_entropy(z, rows["y"])

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        x, eps, x_adv = rows["x"], rows["eps"], rows["x"]
        if self.start == "random":
            x_adv = ball.project(ball.sample_sphere(x, eps, rows["key"]), x, eps)
        lowest, none = torch.full_like(eps, -torch.inf), torch.zeros_like(rows["t"])
        state = {"x_adv": x_adv, "x_prev": x_adv, "size": 2 * eps, "rises": none}
        state["loss"] = -lowest  # the start is no rise
        best = {"x_best": x_adv, "best_gradient": torch.zeros_like(x), "best_loss": lowest}
        check = {"checked_loss": lowest, "halved": none == 0}  # true: condition 2 cannot hold at the first check
        return {**rows, **state, **best, **check, "queries": none}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        z, loss, gradient = self._evaluate(model, rows)
        rows = _keep_the_best(rows, loss, gradient)
        rows = {**rows, "rises": rows["rises"] + (loss > rows["loss"]), "loss": loss}
        rows, gradient = self._check(rows, gradient)
        x_next = _momentum_step(rows, gradient, ball)
        moved = {"x_prev": rows["x_adv"], "x_adv": x_next, "logits": z}
        return {**rows, **moved, "t": rows["t"] + 1, "queries": rows["queries"] + self.eot}

    def _evaluate(self, model: Model, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, f and ∇f at `x_adv`, each the mean over the EoT draws."""
        drawn: list[Tensor] = []

        def objective(z: Tensor) -> Tensor:
            f = self.objective(z, rows)
            drawn.append(f.detach())
            return f

        z, gradient = value_and_gradient(model, rows["x_adv"], objective, self.eot)
        return z, torch.stack(drawn).mean(0), gradient

    def _check(self, rows: Rows, gradient: Tensor) -> tuple[Rows, Tensor]:
        """Where a window ends: halve the step size and go back to the best point, if progress has stalled."""
        window = device_table(windows(self.iterations), gradient.device)[rows["t"].clamp_max(self.iterations)]
        ends = window > 0
        if not possibly(ends):
            return rows, gradient
        oscillates = rows["rises"] <= self.rho * window
        rests = ~rows["halved"] & (rows["checked_loss"] >= rows["best_loss"])
        stalled = ends & (oscillates | rests)
        changed = {
            "size": torch.where(stalled, rows["size"] / 2, rows["size"]),
            "halved": torch.where(ends, stalled, rows["halved"]),
            "checked_loss": torch.where(ends, rows["best_loss"], rows["checked_loss"]),
            "rises": rows["rises"] * ~ends,
            "x_adv": choose(stalled, rows["x_best"], rows["x_adv"]),
        }
        return {**rows, **changed}, choose(stalled, rows["best_gradient"], gradient)


@dataclass(frozen=True)
class ApgdCe(Apgd):
    """Fields: number of iterations, ρ, the start, EoT draws (see Apgd), and restarts."""

    restarts: Count = 1


@functools.cache
def windows(iterations: int) -> tuple[int, ...]:
    """For each number of iterations done, from 0 on, the length of the window that ends there; 0 if none does."""
    length, shortest, shrink = (max(int(share * iterations), 1) for share in (0.22, 0.06, 0.03))
    ends, at = [0] * (iterations + 1), length
    while at <= iterations:
        ends[at] = length
        length = max(length - shrink, shortest)
        at += length
    return tuple(ends)


def _keep_the_best(rows: Rows, loss: Tensor, gradient: Tensor) -> Rows:
    better = loss > rows["best_loss"]
    return {
        **rows,
        "x_best": choose(better, rows["x_adv"], rows["x_best"]),
        "best_gradient": choose(better, gradient, rows["best_gradient"]),
        "best_loss": torch.where(better, loss, rows["best_loss"]),
    }


def _momentum_step(rows: Rows, gradient: Tensor, ball: Ball) -> Tensor:
    x, x_adv, eps = rows["x"], rows["x_adv"], rows["eps"]
    share = wide(torch.where(rows["t"] > 0, _MOMENTUM, 1.0).to(x.dtype), x)
    v = ball.project(ball.step(x_adv, gradient, rows["size"]), x, eps)
    return ball.project(torch.lerp(x_adv, v, share) + (1 - share) * (x_adv - rows["x_prev"]), x, eps)
