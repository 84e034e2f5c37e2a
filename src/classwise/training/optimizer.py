"""Optimisers by spec: ``sgd:lr=0.1,momentum=0.9,weight_decay=2e-4`` or ``adam:lr=1e-3``.

With ``decay_norm=false`` the scales and shifts of normalisation layers are in a group of their own without weight
decay; everything else decays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import Fraction, NonNegative, Positive
from classwise.training.choice import choose

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm)  # batch- and instance-norms are _NormBase


@dataclass(frozen=True)
class Optimizer:
    """lr: the base rate, which the schedule multiplies. weight_decay: λ of the penalty ½λ‖θ‖²."""

    lr: Positive = 0.1
    weight_decay: NonNegative = 0.0
    decay_norm: bool = True

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of the model's trainable parameters."""
        raise NotImplementedError

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The trainable parameters, those of norms apart where they do not decay."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            raise UserError("the model has no parameter to train; is everything frozen (requires_grad=False)?")
        norms = set() if self.decay_norm else _norm_parameters(model)
        rest = [parameter for parameter in trained if parameter not in norms]
        apart = [parameter for parameter in trained if parameter in norms]
        made = [{"params": rest, "weight_decay": self.weight_decay}, {"params": apart, "weight_decay": 0.0}]
        return [group for group in made if group["params"]]


@dataclass(frozen=True)
class Sgd(Optimizer):
    """Stochastic gradient descent; the defaults are TRADES'."""

    weight_decay: NonNegative = 2e-4
    momentum: Fraction = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise UserError("nesterov needs momentum; set momentum=0.9, or nesterov=false.")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.groups(model), lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma, Ba, ICLR 2015). decoupled: weight decay beside the gradient, as AdamW, not in it."""

    lr: Positive = 1e-3
    betas: tuple[Fraction, ...] = (0.9, 0.999)
    eps: Positive = 1e-8
    decoupled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise UserError(f"betas must be two numbers, such as 0.9-0.999; got {self.betas}.")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind(self.groups(model), lr=self.lr, betas=(self.betas[0], self.betas[1]), eps=self.eps)


KINDS: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam}


def parse(wanted: str | Mapping[str, Any] | Optimizer) -> Optimizer:
    """The optimiser of a spec or a table."""
    return choose(KINDS, wanted, "optimizer")


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def _norm_parameters(model: nn.Module) -> set[nn.Parameter]:
    norms = (module for module in model.modules() if isinstance(module, NORMS))
    return {parameter for norm in norms for parameter in norm.parameters(recurse=False)}
