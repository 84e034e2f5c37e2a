"""Averages of the weights over training, which are validated and saved beside the weights themselves.

    ema    θ̄ ← d θ̄ + (1−d) θ          after every step or every epoch (Polyak, Juditsky 1992)
    swa    θ̄ = mean of θ               after every epoch from `start` on (Izmailov et al., UAI 2018)
    fawa   θ̄ ← d θ̄ + (1−d) θ          after an epoch whose validation worst-class accuracy is ≥ threshold
                                        (CFA: Wei et al., CVPR 2023, §6)

Batch-norm's running statistics are averaged like weights, or re-estimated (`estimate`) from training images; counters,
which are whole numbers, are copied. The first epoch that counts sets θ̄ = θ; until then there is no average. Departure:
CFA's code keeps the random initial weights as θ̄ until then.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import Fraction, Natural, Share
from classwise.training.choice import choose

PAPERS = {"ema": ("polyak1992",), "swa": ("izmailov2018",), "fawa": ("wei2023",)}

#: θ̄ by the names of the model's state dict, and how many θ are in it; empty until the first. Goes in the checkpoint.
Average: TypeAlias = dict[str, Tensor]

_COUNT = ".count"  # no parameter's name begins with a dot


@dataclass(frozen=True)
class Averaging:
    """start: epochs done before the first θ counts. estimate: re-estimate batch-norm statistics for θ̄."""

    start: Natural = field(default=0, kw_only=True)
    estimate: bool = field(default=False, kw_only=True)

    #: Whether `after_epoch` needs the worst class's validation accuracy.
    validates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def after_step(self, average: Average, model: nn.Module, epoch: float) -> Average:
        """The average after one more step; `epoch` are done so far, fractions included. Tensors are changed in place,
        here and in `after_epoch`."""
        return average

    def after_epoch(self, average: Average, model: nn.Module, epoch: int, worst: float | None) -> Average:
        """The average after one more epoch, the `epoch`th; worst: the worst class's validation accuracy."""
        return average


@dataclass(frozen=True)
class Ema(Averaging):
    """decay: d. ramp: d is at most (1+n)/(10+n) at the n-th θ, so that a short training forgets its beginning."""

    decay: Fraction = 0.999
    every: Literal["step", "epoch"] = "step"
    ramp: bool = False

    def after_step(self, average: Average, model: nn.Module, epoch: float) -> Average:
        return self._update(average, model) if self.every == "step" and epoch >= self.start else average

    def after_epoch(self, average: Average, model: nn.Module, epoch: int, worst: float | None) -> Average:
        return self._update(average, model) if self.every == "epoch" and epoch >= self.start else average

    def _update(self, average: Average, model: nn.Module) -> Average:
        n = count(average)
        decay = min(self.decay, (1 + n) / (10 + n)) if self.ramp else self.decay
        return _blend(average, model, 1 - decay)


@dataclass(frozen=True)
class Swa(Averaging):
    """The plain mean."""

    def after_epoch(self, average: Average, model: nn.Module, epoch: int, worst: float | None) -> Average:
        return _blend(average, model, 1 / (count(average) + 1)) if epoch >= self.start else average


@dataclass(frozen=True)
class Fawa(Averaging):
    """Fairness-aware weight averaging, with the paper's α = `decay` and δ = `threshold`; its code has .88 and .24."""

    decay: Fraction = 0.85
    threshold: Share = 0.2
    start: Natural = field(default=50, kw_only=True)

    validates: ClassVar[bool] = True

    def after_epoch(self, average: Average, model: nn.Module, epoch: int, worst: float | None) -> Average:
        if worst is None:
            raise UserError(
                "fawa chooses epochs by validation accuracy, but nothing is held out: set a validation split."
            )
        return _blend(average, model, 1 - self.decay) if epoch >= self.start and worst >= self.threshold else average


KINDS: dict[str, type[Averaging]] = {"ema": Ema, "swa": Swa, "fawa": Fawa}


def parse(wanted: str | Mapping[str, Any] | Averaging) -> Averaging:
    """The averaging of a spec or a table."""
    return choose(KINDS, wanted, "averaging")


def count(average: Average) -> int:
    """How many θ are in the average."""
    return int(average[_COUNT]) if average else 0


def averaged(model: nn.Module, average: Average) -> nn.Module:
    """A copy of the model with the average's weights; with its own while there is no average."""
    twin = copy.deepcopy(model)
    if average:
        twin.load_state_dict({name: value for name, value in average.items() if name != _COUNT})
    return twin


@torch.no_grad()
def estimate_batch_norm(model: nn.Module, images: Iterable[Tensor]) -> None:
    """Recompute batch-norm's running statistics: the plain mean over the given batches, in train mode."""
    update_bn(images, model)


@torch.no_grad()
def _blend(average: Average, model: nn.Module, share: float) -> Average:
    """(1 − share) θ̄ + share θ."""
    state = {name: value.detach() for name, value in model.state_dict().items()}
    if not average:
        return {_COUNT: torch.tensor(1)} | {name: value.clone() for name, value in state.items()}
    for name, value in state.items():
        if value.is_floating_point():
            average[name].lerp_(value, share)
        else:
            average[name].copy_(value)
    average[_COUNT] += 1
    return average
