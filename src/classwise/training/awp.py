"""Adversarial weight perturbation (Wu, Xia, Wang, NeurIPS 2020): train at weights perturbed to increase the loss.

    v_l = γ · ‖w_l‖ · g_l / ‖g_l‖,   g = ∇_w loss(w)            w ← w − η ∇loss(w + v)

One ascent step, layer by layer, on every weight tensor of more than one dimension; biases and norms stay. The step is
the same for any method, whose whole loss it ascends. The extra pass leaves batch-norm's running statistics alone, as
the official code's does by making it on a copy of the model.
Departure: the weights are restored before the optimiser's step and bit by bit, where the official code steps at w + v
and subtracts v afterwards; the two differ by rounding and in weight decay, which here sees w and there w + v.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from classwise.core import spec
from classwise.core.spec import Bounds, Natural
from classwise.training.choice import choose

PAPERS = ("wu2020awp",)

_TINY = 1e-20  # a layer without a gradient does not move


@dataclass(frozen=True)
class Awp:
    """gamma: the size of the perturbation relative to the layer's weights. start: epochs done before it begins."""

    gamma: Annotated[float, Bounds(least=0, note="The paper's are 0.01 and 0.005.")] = 0.01
    start: Natural = 0

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    @contextlib.contextmanager
    def perturbed(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module], Tensor],
        epoch: float = 0.0,
        average: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    ) -> Iterator[None]:
        """The model at w + v inside, at w again after; parameter gradients made inside are kept.

        loss: the batch's mean loss (or a multiple: only its direction counts). epoch: epochs done so far.
        average: a gradient's mean over all processes that share the batch, so that all of them move alike. The model
        is the plain one, not one wrapped for several processes.
        """
        weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
        if epoch < self.start or not self.gamma or not weights:
            yield
            return
        gradients = [average(g) for g in _gradients(model, weights, loss)]
        before = [weight.detach().clone() for weight in weights]
        try:
            with torch.no_grad():
                for weight, g in zip(weights, gradients, strict=True):
                    weight.add_(g * (self.gamma * weight.norm() / (g.norm() + _TINY)))
            torch.clear_autocast_cache()  # under autocast it holds the weights as they were
            yield
        finally:
            with torch.no_grad():
                for weight, kept in zip(weights, before, strict=True):
                    weight.copy_(kept)
            torch.clear_autocast_cache()


def parse(wanted: str | Mapping[str, Any] | Awp) -> Awp:
    """``awp:gamma=0.005,start=10``, or the same as a table."""
    return choose({"awp": Awp}, wanted, "weight perturbation")


def _gradients(model: nn.Module, weights: list[nn.Parameter], loss: Callable[[nn.Module], Tensor]) -> list[Tensor]:
    """The loss's gradient at each weight; buffers, which a pass in train mode may move, are put back."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        found = torch.autograd.grad(loss(model), weights, allow_unused=True)
    finally:
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]
