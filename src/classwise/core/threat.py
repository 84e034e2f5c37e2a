"""The threat model: a norm and a radius, and the few geometric operations every attack is made of.

Every function takes the radius (or step) as one number **or one value per example**. That alone makes class-wise
margins ordinary: no attack has a second copy for them.

    project        Π(x', x)   = the nearest point to x' with ‖x' − x‖ ≤ ε and x' in [0,1]
    steepest_step  x' + α · argmax_{‖d‖≤1} ⟨g, d⟩      (sign for linf, g/‖g‖ for l2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.spec import number

Norm = Literal["linf", "l2"]
Radius: TypeAlias = "float | Tensor"


@dataclass(frozen=True)
class Threat:
    """‖x' − x‖ ≤ ε in the given norm, with x' in [0,1]. The radius is a number or text such as "8/255"."""

    norm: Norm = "linf"
    eps: float = 8 / 255

    def __post_init__(self) -> None:
        if str(self.norm) not in ("linf", "l2"):
            raise UserError(f"norm {self.norm!r} is not known; use 'linf' or 'l2'.")
        eps = number(self.eps)
        limit = 1.0 if self.norm == "linf" else float("inf")
        if not 0 < eps <= limit:
            remedy = f" Did you mean {eps:g}/255?" if 1 < eps <= 255 else ""
            bound = "in (0, 1]" if self.norm == "linf" else "positive"
            raise UserError(f"eps must be {bound}, in units of pixels in [0,1]; got {eps:g}.{remedy}")
        object.__setattr__(self, "eps", eps)


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


def norms(delta: Tensor, norm: Norm) -> Tensor:
    """The norm of each example's perturbation, shape (B,)."""
    flat = delta.flatten(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)


def project(x_adv: Tensor, x: Tensor, eps: Radius, norm: Norm) -> Tensor:
    """Into the ε-ball around `x`, then into [0,1] (which, x being inside, can only shorten the perturbation)."""
    radius = per_example(eps, x)
    if norm == "linf":
        return torch.minimum(torch.maximum(x_adv, x - radius), x + radius).clamp_(0, 1)
    delta = x_adv - x
    length = per_example(norms(delta, "l2"), x)
    assert isinstance(length, Tensor)
    factor = (radius / length.clamp_min(_tiny(x))).clamp_max(1.0)
    return (x + delta * factor).clamp_(0, 1)


def steepest_step(x_adv: Tensor, gradient: Tensor, step: Radius, norm: Norm) -> Tensor:
    """One step of length `step` in the direction that raises the loss fastest in this norm; not projected."""
    size = per_example(step, x_adv)
    if norm == "linf":
        return x_adv + size * gradient.sign()
    # Scaling by the largest entry first keeps tiny gradients (saturated softmax) from underflowing in the square.
    largest = per_example(norms(gradient, "linf"), gradient)
    assert isinstance(largest, Tensor)
    scaled = gradient / largest.clamp_min(_tiny(gradient))
    length = per_example(norms(scaled, "l2"), scaled)
    assert isinstance(length, Tensor)
    return x_adv + size * scaled / length.clamp_min(_tiny(scaled))


def _tiny(like: Tensor) -> float:
    """Keeps x/‖x‖ finite where x is zero."""
    return torch.finfo(like.dtype).tiny
