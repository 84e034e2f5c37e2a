"""The threat model: a norm with its radius, and the geometry that every attack is made of, one `Ball` per norm.

Wherever a radius (or a step size) is asked for, it is one number **or one value per example**. That alone makes
class-wise radii ordinary: no attack has a second copy for them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.meta import Norm as Norm
from classwise.core.spec import number

Radius: TypeAlias = "float | Tensor"

_LENGTH = 1  # stream of the length of a random perturbation; its direction is stream 0


@dataclass(frozen=True)
class Threat:
    """‖x' − x‖ ≤ ε in the given norm, with x' in [0,1]. The radius is a number or text such as "8/255"."""

    norm: Norm = "linf"
    eps: float = 8 / 255

    def __post_init__(self) -> None:
        largest, eps = self.ball.largest_radius, number(self.eps)
        if not 0 < eps <= largest:
            remedy = f" Did you mean {eps:g}/255?" if 1 < eps <= 255 else ""
            bound = "positive" if math.isinf(largest) else f"in (0, {largest:g}]"
            raise UserError(f"eps must be {bound}, in units of pixels in [0,1]; got {eps:g}.{remedy}")
        object.__setattr__(self, "eps", eps)

    @property
    def ball(self) -> Ball:
        """The geometry of the norm."""
        return ball_of(self.norm)


def ball_of(norm: Norm) -> Ball:
    """The ball of a norm; an error where there is none."""
    if str(norm) not in BALLS:
        raise UserError(f"norm {norm!r} is not known; use {' or '.join(map(repr, BALLS))}.")
    return BALLS[norm]


class Ball(ABC):
    """The start, the step and the projection of attacks in one norm."""

    name: Norm
    largest_radius: float = math.inf  # with which every image is in the ball already

    @abstractmethod
    def norm(self, delta: Tensor) -> Tensor:
        """‖δ‖ of each example, shape (B,)."""

    @abstractmethod
    def dual(self, gradient: Tensor) -> Tensor:
        """max_{‖d‖≤1} ⟨g, d⟩ of each example, shape (B,): the norm of gradients where `norm` is that of steps."""

    @abstractmethod
    def unit(self, direction: Tensor) -> Tensor:
        """The direction with a length of 1 in this norm; for linf, the corner it points to."""

    @abstractmethod
    def project(self, x_adv: Tensor, x: Tensor, eps: Radius) -> Tensor:
        """Π(x', x): into the ε-ball around `x`, then into [0,1], which can only shorten a perturbation of an image."""

    @abstractmethod
    def step(self, x_adv: Tensor, gradient: Tensor, size: Radius) -> Tensor:
        """x' + α · argmax_{‖d‖≤1} ⟨g, d⟩: along the direction that raises the loss fastest; not projected."""

    @abstractmethod
    def direction(self, key: Tensor, shape: Sequence[int]) -> Tensor:
        """A random direction per key: uniform in the cube for linf, on the sphere for l2; its length means nothing."""

    @abstractmethod
    def sample(self, x: Tensor, eps: Radius, key: Tensor) -> Tensor:
        """A uniformly random point of the ε-ball around `x`; not clamped to [0,1]."""

    def sample_sphere(self, x: Tensor, eps: Tensor, key: Tensor) -> Tensor:
        """A point at distance ε of `x` in a random direction; not clamped to [0,1]."""
        u = self.direction(key, x.shape[1:])
        return x + u.to(x.dtype) * wide((eps / self.norm(u)).to(x.dtype), x)


class LinfBall(Ball):
    """max_i |δ_i|: no pixel changes by more than ε."""

    name = "linf"
    largest_radius = 1.0

    def norm(self, delta: Tensor) -> Tensor:
        return delta.flatten(1).abs().amax(1)

    def dual(self, gradient: Tensor) -> Tensor:
        return gradient.abs().flatten(1).sum(1)

    def unit(self, direction: Tensor) -> Tensor:
        return direction.sign()

    def project(self, x_adv: Tensor, x: Tensor, eps: Radius) -> Tensor:
        radius = per_example(eps, x)
        return torch.minimum(torch.maximum(x_adv, x - radius), x + radius).clamp_(0, 1)

    def step(self, x_adv: Tensor, gradient: Tensor, size: Radius) -> Tensor:
        return x_adv + per_example(size, x_adv) * gradient.sign()

    def direction(self, key: Tensor, shape: Sequence[int]) -> Tensor:
        return 2 * rng.uniform(key, shape) - 1

    def sample(self, x: Tensor, eps: Radius, key: Tensor) -> Tensor:
        return x + per_example(eps, x) * self.direction(key, x.shape[1:]).to(x.dtype)


class L2Ball(Ball):
    """√Σ_i δ_i²: the Euclidean distance."""

    name = "l2"

    def norm(self, delta: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(delta.flatten(1), dim=1)
        return length

    def dual(self, gradient: Tensor) -> Tensor:
        return self.norm(gradient)

    def unit(self, direction: Tensor) -> Tensor:
        return direction / wide(self.norm(direction), direction)

    def project(self, x_adv: Tensor, x: Tensor, eps: Radius) -> Tensor:
        delta = x_adv - x
        factor = (per_example(eps, x) / wide(self.norm(delta), x).clamp_min(_tiny(x))).clamp_max(1.0)
        return (x + delta * factor).clamp_(0, 1)

    def step(self, x_adv: Tensor, gradient: Tensor, size: Radius) -> Tensor:
        # Scaling by the largest entry first keeps tiny gradients (saturated softmax) from underflowing in the square.
        scaled = gradient / wide(gradient.flatten(1).abs().amax(1), gradient).clamp_min(_tiny(gradient))
        return x_adv + per_example(size, x_adv) * scaled / wide(self.norm(scaled), scaled).clamp_min(_tiny(scaled))

    def direction(self, key: Tensor, shape: Sequence[int]) -> Tensor:
        return rng.normal(key, shape)

    def sample(self, x: Tensor, eps: Radius, key: Tensor) -> Tensor:
        # Uniform in a d-ball: a Gaussian direction, and a length distributed as U^(1/d).
        u = self.direction(key, x.shape[1:])
        length = rng.uniform(key, (1,), _LENGTH)[:, 0] ** (1 / math.prod(x.shape[1:]))
        return x + per_example(eps, x) * (u * wide(length / self.norm(u), u)).to(x.dtype)


LINF, L2 = LinfBall(), L2Ball()

#: Every norm there is.
BALLS: dict[Norm, Ball] = {ball.name: ball for ball in (LINF, L2)}


def wide(column: Tensor, like: Tensor) -> Tensor:
    """One value per example, shaped (B,1,1,…) to broadcast over images."""
    return column.reshape(-1, *[1] * (like.ndim - 1))


def choose(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Images chosen example by example."""
    return torch.where(wide(mask, yes), yes, no)


def per_example(value: Radius, like: Tensor) -> Radius:
    """A radius that broadcasts over `like`: a number as it is, one value per example shaped (B,1,1,…)."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    return wide(value.to(device=like.device, dtype=like.dtype), like)


def _tiny(like: Tensor) -> float:
    """Keeps x/‖x‖ finite where x is zero."""
    return torch.finfo(like.dtype).tiny
