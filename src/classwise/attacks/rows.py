"""An iterative attack is its rows: a dict of tensors whose first dimension is the example.

The framework makes the first columns, an attack adds its own (`x_adv` always, perhaps a step size or a best loss):

    x, y       the clean image and its label          eps    the example's radius
    key        its random numbers (classwise.draws)   t      steps done so far
    logits     what the model said of the `x_adv` that the last `advance` was given

So the engine can retire an example in the middle of an attack, let a fresh one take its place, cut a batch in two
or move it, and no attack needs to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from classwise import draws
from classwise.errors import UserError
from classwise.losses import cross_entropy
from classwise.threat import Norm, Radius

Rows: TypeAlias = "dict[str, Tensor]"
Model: TypeAlias = Callable[[Tensor], Tensor]


@runtime_checkable
class Attack(Protocol):
    """A frozen dataclass: its fields are the settings, its file's name is the attack's name."""

    @property
    def steps(self) -> int:
        """How many times `advance` is called after `begin`."""

    @property
    def restarts(self) -> int:
        """How many times the whole attack is tried, each from another random start."""

    def begin(self, model: Model, rows: Rows, norm: Norm) -> Rows:
        """Add `x_adv`, the first point to try, and whatever else the attack remembers."""

    def advance(self, model: Model, rows: Rows, norm: Norm) -> Rows:
        """Ask the model about `x_adv` (its answer becomes `logits`) and move to the next point."""


def fresh(x: Tensor, y: Tensor, eps: Radius, key: Tensor) -> Rows:
    """The columns every attack starts from."""
    radius = eps if isinstance(eps, Tensor) and eps.ndim else torch.full((len(x),), float(eps), dtype=x.dtype)
    zeros = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return {"x": x, "y": y, "eps": radius.to(x.device, x.dtype), "key": key, "t": zeros}


def select(rows: Rows, mask: Tensor) -> Rows:
    """The rows where `mask` holds."""
    return {name: column[mask] for name, column in rows.items()}


def join(parts: list[Rows]) -> Rows:
    """Several sets of rows below one another; columns that not all of them have are dropped."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def value_and_gradient(
    model: Model, x: Tensor, objective: Callable[[Tensor], Tensor], eot: int = 1
) -> tuple[Tensor, Tensor]:
    """The logits at `x` and ∇_x of the summed per-example objective; both averaged over `eot` calls.

    Averaging is the expectation over a randomised model's own draws (Athalye et al. 2018); 1 for ordinary models.
    """
    logits, gradient = torch.zeros(()), torch.zeros(())
    for _ in range(eot):
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            z = model(point)
            value = objective(z).sum()
            g = torch.autograd.grad(value, point, allow_unused=True)[0] if value.requires_grad else None
        if g is None:
            raise UserError(
                "the model's output has no gradient with respect to its input: it runs under no_grad, detaches it or "
                "thresholds it. Let the gradient through, or use an attack that needs none, such as noise."
            )
        logits = logits.to(z.device) + z.detach() / eot
        gradient = gradient.to(g.device) + g / eot
    return logits, gradient


def craft(
    attack: Attack,
    model: Model,
    x: Tensor,
    y: Tensor,
    eps: Radius,
    norm: Norm = "linf",
    generator: torch.Generator | None = None,
) -> Tensor:
    """The plain call: adversarial examples for one batch, the last iterate of every example.

    Of several restarts the one kept is a misclassified one if there is any, and among those the one of largest
    cross entropy. The model's train/eval mode is the caller's business.
    """
    x = x.detach()
    best, best_broken = x, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    best_loss = torch.full((len(x),), float("-inf"), device=x.device)
    for _ in range(attack.restarts):
        rows = attack.begin(model, fresh(x, y, eps, draws.keys_from(generator, len(x), x.device)), norm)
        for _ in range(attack.steps):
            rows = attack.advance(model, rows, norm)
        if attack.restarts == 1:
            return rows["x_adv"]
        with torch.no_grad():
            z = model(rows["x_adv"])
        loss, broken = cross_entropy(z, y), z.argmax(1) != y
        better = (broken & ~best_broken) | ((broken == best_broken) & (loss > best_loss))
        best = torch.where(better.reshape(-1, *[1] * (x.ndim - 1)), rows["x_adv"], best)
        best_loss = torch.where(better, loss, best_loss)
        best_broken |= broken
    return best
