"""Learning-rate schedules: the factor of the base rate after t epochs, fractions included.

    step:milestones=[75, 90],factor=0.1        multiplied by the factor at each milestone
    cyclic:peak=0.5                         a triangle, 0 → 1 → 0 (Smith 2017; FGSM-RS: Wong et al., ICLR 2020)
    cosine                                  ½(1 + cos(πt/E)), every iteration or every epoch
    constant
    knots:epochs=[0, 1, 6, 12, 15],factor=[0, 1, .1, .01, .001]   straight lines between points (FGSM-RS on ImageNet)
    knots:epochs=[0, 1, 6, 12, 15],factor=[0, 1, .1, .01, .001],of=15   scaled to the epochs of the training

A schedule is stateless, so a resumed run needs nothing to continue it. `warmup`, a field of them all, multiplies the
factor by a line from 0 to 1 over that many epochs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import NonNegative, OpenShare, Positive
from classwise.training.choice import choose


@dataclass(frozen=True)
class Schedule:
    """warmup: epochs over which the rate rises from zero."""

    warmup: NonNegative = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def at(self, t: float, epochs: int) -> float:
        """The factor of the base rate for the step taken after t of all epochs."""
        rise = min(1.0, t / self.warmup) if self.warmup else 1.0
        return rise * self.shape(t, epochs)

    def shape(self, t: float, epochs: int) -> float:
        """The factor without warm-up."""
        return 1.0


@dataclass(frozen=True)
class Constant(Schedule):
    """The base rate throughout."""


@dataclass(frozen=True)
class Step(Schedule):
    """factor^(number of milestones reached), a milestone being reached when epoch ≥ milestone.

    milestones: numbers of epochs; one below 1 is a fraction of all epochs, reached when so many are done.
    first: the number of the first epoch. Counting from 1, as TRADES does, milestone 75 changes the rate after 74 full
    epochs; counting from 0, as torch's MultiStepLR does, after 75.
    """

    milestones: tuple[Positive, ...] = (75, 90)
    factor: Positive = 0.1
    first: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_increasing("milestones", self.milestones)

    def shape(self, t: float, epochs: int) -> float:
        epoch = math.floor(t) + self.first
        return self.factor ** sum(t >= m * epochs if m < 1 else epoch >= m for m in self.milestones)


@dataclass(frozen=True)
class Cyclic(Schedule):
    """Up in a straight line until the fraction `peak` of all epochs, then down to zero."""

    peak: OpenShare = 0.5

    def shape(self, t: float, epochs: int) -> float:
        return float(np.interp(t, (0, self.peak * epochs, epochs), (0, 1, 0)))


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine. by: "iteration", or "epoch" for a rate that is the same throughout each (RST)."""

    by: Literal["iteration", "epoch"] = "iteration"

    def shape(self, t: float, epochs: int) -> float:
        done = math.floor(t) if self.by == "epoch" else t
        return (1 + math.cos(math.pi * min(done / epochs, 1.0))) / 2


@dataclass(frozen=True)
class Knots(Schedule):
    """Straight lines through the points (epochs done, factor); constant before the first and after the last.

    of: the epochs of the training that the points were written for; a training of another length scales them.
    """

    epochs: tuple[NonNegative, ...] = (0, 1, 6, 12, 15)
    factor: tuple[NonNegative, ...] = (0, 1, 0.1, 0.01, 0.001)
    of: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_increasing("epochs", self.epochs)
        if len(self.factor) != len(self.epochs):
            raise UserError(f"knots need one factor for each epoch: got {len(self.factor)} and {len(self.epochs)}.")

    def shape(self, t: float, epochs: int) -> float:
        return float(np.interp(t if self.of is None else t * self.of / epochs, self.epochs, self.factor))


KINDS: dict[str, type[Schedule]] = {
    "step": Step,
    "cyclic": Cyclic,
    "cosine": Cosine,
    "constant": Constant,
    "knots": Knots,
}


def parse(wanted: str | Mapping[str, Any] | Schedule) -> Schedule:
    """The schedule of a spec or a table."""
    return choose(KINDS, wanted, "schedule")


def _require_increasing(name: str, values: tuple[float, ...]) -> None:
    if not values or any(a >= b for a, b in itertools.pairwise(values)):
        raise UserError(f"{name} must be one or more increasing numbers, got {', '.join(f'{v:g}' for v in values)}.")
