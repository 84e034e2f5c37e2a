"""FAB, the fast adaptive boundary attack (Croce and Hein, ICML 2020): seeks the nearest misclassified point.

At x' every difference of logits f_j = z_j − z_y is replaced by its linearisation; the class whose plane {f_j = 0} is
nearest, by |f_j(x')| / ‖∇f_j(x')‖ in the dual norm, is the target. With d_1 and d_2 the steps from x' and from x to the
nearest point of that plane in the pixel box (classwise.attacks.hyperplane) and a_i = ‖d_i‖:

    α  = min(a_1 / (a_1 + a_2), α_max)
    x' ← clamp((1 − α)(x' + η d_1) + α (x + η d_2))
    x' ← x + β (x' − x)                                    once x' is misclassified: the backward step

The nearest misclassified x' is kept. The first start is x itself, later ones are random at distance ε/2. The points
visited are those of the authors' code. Departures: where the backward step leaves a point that is still misclassified
that counts too (its logits are there anyway), and the final search along the line from x is left out, as it is in
AutoAttack.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, gradient_of
from classwise.attacks.hyperplane import nearest_step
from classwise.core.spec import Bounds, Count, OpenShare, Share, Steps
from classwise.core.threat import Ball, choose, wide

PAPERS = ("croce2020fab",)

_SMALLEST = 1e-8  # least length of a step, so that α is a number where x' is on the plane


class Plane(NamedTuple):
    """What the model said at x', and the linearised difference of logits that is to become zero."""

    logits: Tensor
    value: Tensor  # f(x'), one per example
    gradient: Tensor  # ∇f(x')
    queries: int  # gradients it took


@dataclass(frozen=True)
class Boundary(Attack):
    """The attack without its choice of the class to go for. Fields as in the paper; see fab."""

    iterations: Steps = 100
    alpha_max: Share = 0.1
    eta: Annotated[float, Bounds(least=1, note="It lengthens the step.")] = 1.05
    beta: OpenShare = 0.9
    minimal: bool = False

    supports = ("linf", "l2")

    @property
    def steps(self) -> int:
        return self.iterations

    @property
    def seeks_distance(self) -> bool:
        return self.minimal

    @abstractmethod
    def linearise(self, model: Model, rows: Rows, ball: Ball) -> Plane:
        """The plane to go for from `x_adv`."""

    def started(self, rows: Rows, ball: Ball, start: Tensor) -> Rows:
        """The rows before the first iteration; `start` is the number of each example's start."""
        x = rows["x"]
        x_adv = choose(start > 0, ball.sample_sphere(x, rows["eps"] / 2, rows["key"]).clamp_(0, 1), x)
        nowhere = torch.full_like(rows["eps"], torch.inf)
        return {**rows, "x_adv": x_adv, "x_best": x.clone(), "best": nowhere, "queries": torch.zeros_like(rows["t"])}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        """One iteration: a plane at `x_adv`, the step, and a look at where it led."""
        plane = self.linearise(model, rows, ball)
        rows = _nearer(rows, rows["x_adv"], plane.logits, ball)
        point = self._forward(rows["x_adv"], rows["x"], plane, ball)
        with torch.no_grad():
            z = model(point)
        rows = _nearer(rows, point, z, ball)
        over = (z.argmax(1) != rows["y"]).to(point.dtype)
        x_next = torch.lerp(rows["x"], point, wide(1 - (1 - self.beta) * over, point))  # where not over, the point
        queries = rows["queries"] + plane.queries + 1
        return {**rows, "x_adv": x_next, "logits": plane.logits, "queries": queries, "t": rows["t"] + 1}

    def _forward(self, x_adv: Tensor, x: Tensor, plane: Plane, ball: Ball) -> Tensor:
        value, w = plane.value, plane.gradient
        at_x = value + ((x - x_adv) * w).flatten(1).sum(1)
        steps = [nearest_step(x_adv, value, w, ball), nearest_step(x, at_x, w, ball)]
        near, far = (ball.norm(step).clamp_min(_SMALLEST) for step in steps)
        alpha = wide((near / (near + far)).clamp_max(self.alpha_max), x)
        return torch.lerp(x_adv + self.eta * steps[0], x + self.eta * steps[1], alpha).clamp_(0, 1)


@dataclass(frozen=True)
class Fab(Boundary):
    """Fields: number of iterations; α_max, the most of the way that leads back to x; η, how far beyond the plane;
    β, how much is left after a backward step; restarts, the first from x.

    minimal: do not stop at the radius but record the smallest distance found.
    An iteration costs as many gradients as there are other classes: with many, fab_t is meant.
    """

    restarts: Count = 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return self.started(rows, ball, rows["restart"])

    def linearise(self, model: Model, rows: Rows, ball: Ball) -> Plane:
        """The nearest of the planes of all other classes; one gradient each from the same forward pass."""
        y = rows["y"]
        with torch.enable_grad():
            x = rows["x_adv"].detach().requires_grad_()
            z = model(x)
            others = z.shape[1] - 1
            value, w = torch.zeros_like(rows["eps"]), torch.zeros_like(rows["x"])
            nearest = torch.full_like(rows["eps"], torch.inf)
            for shift in range(1, others + 1):
                f = difference(z, y, (y + shift) % z.shape[1])
                g = gradient_of(f, x, keep=shift < others)
                away = f.detach().abs() / ball.dual(g).clamp_min(torch.finfo(g.dtype).tiny)
                closer = away < nearest
                nearest, value = torch.where(closer, away, nearest), torch.where(closer, f.detach(), value)
                w = choose(closer, g, w)
        return Plane(z.detach(), value, w, others)


def difference(z: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """f = z_target − z_y, per example."""
    return (z.gather(1, target[:, None]) - z.gather(1, y[:, None]))[:, 0]


def _nearer(rows: Rows, point: Tensor, z: Tensor, ball: Ball) -> Rows:
    """The rows with `point` kept where it is misclassified and nearer than all before."""
    distance = ball.norm(point - rows["x"])
    better = (z.argmax(1) != rows["y"]) & (distance < rows["best"])
    x_best = choose(better, point, rows["x_best"])
    return {**rows, "x_best": x_best, "best": torch.where(better, distance, rows["best"])}
