"""Fair-ARD (Yue et al., NeurIPS 2023): distillation with larger weights for classes that a few steps of PGD break.

    κ_i = how many of the inner attack's iterates x_0 … x_{K−1} are classified correctly,   κ_k = its mean over class k
    ω_k ∝ (κ_k + 1e-5)^(−β),  Σω = C,  then clipped to [5/6, 5/2];   ω = 1 in the first epoch, then from the last one
    min_θ  (1/B) Σ ω_y · (the loss of the base method)

The base is `ard` (Fair-ARD), `rslad`, `iad` or `mtard`, with its attack, in the mode of its attack: κ is counted in
train mode for ard and iad. β = 2. The weights are not scaled again after clipping, so they may add up to more than C.
In mtard the balance of the two teachers is that of the weighted losses. The official code trains all of them with
Nesterov momentum, which the original methods do not have: the recipes do.

protocol="code", of mtard alone: there the clean images too get the robust teacher's answer to x', and the teacher for
clean images is not used. Departures: κ_k is divided by each class's own count, not by n/C; a class without
examples has ω = 1 and no part in the sum; Fair-RSLAD's code leaves out the 1e-5.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Rows
from classwise.core.errors import UserError
from classwise.core.records import Array, Records
from classwise.core.spec import Natural, NonNegative, Positive, Steps
from classwise.methods.ard import Ard
from classwise.methods.iad import Iad
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, Method, State, TeacherName, by_class
from classwise.methods.mtard import Mtard
from classwise.methods.rslad import Rslad

PAPERS = ("yue2023",)


class _CodeMtard(Mtard):
    """mtard as in the code of Fair-MTARD: one teacher, whose answer to x' is the label of x too."""

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        return ("teacher",)

    def clean_target(self, batch: Batch) -> Tensor:
        return batch.teacher(batch.adversarial)


_BASES: dict[str, type[Madry]] = {"ard": Ard, "rslad": Rslad, "iad": Iad, "mtard": Mtard}


@dataclass(frozen=True, kw_only=True)
class FairArd(Method):
    """base: the method that is weighted, with its own defaults; steps, step: of its attack; begin: epochs before iad's
    second term; exponent: β; least, most: bounds of ω; protocol: see above."""

    base: Literal["ard", "rslad", "iad", "mtard"] = "ard"
    steps: Steps = 10
    step: Positive | None = None
    begin: Natural = 60
    exponent: NonNegative = 2.0
    least: NonNegative = 5 / 6
    most: Positive = 5 / 2
    protocol: Literal["paper", "code"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.most:
            raise UserError(f"least must not exceed most, got {self.least:g} and {self.most:g}.")
        _ = self.distilled  # whose own checks cover the shared fields

    @functools.cached_property
    def distilled(self) -> Madry:
        """The base method."""
        kind = _CodeMtard if self.base == "mtard" and self.protocol == "code" else _BASES[self.base]
        shared = (*self.class_wise, "steps", "step", *(["begin"] if self.base == "iad" else []))
        given: dict[str, Any] = {name: getattr(self, name) for name in shared}
        return kind(**given)

    @property
    def mode(self) -> Literal["eval", "train"]:
        """Of the network while it is attacked."""
        return self.distilled.mode

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        return self.distilled.needs_teacher()

    def idle_epochs(self) -> int:
        return self.distilled.idle_epochs()

    def init(self, class_names: Sequence[str]) -> State:
        return self.distilled.init(class_names)

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        kappa = torch.zeros_like(batch.y)

        def count(rows: Rows) -> None:
            kappa.add_(rows["logits"].argmax(1) == batch.y)

        x_adv = self.distilled.attack(model, dataclasses.replace(batch, observe=count), state)
        batch.columns["kappa"] = kappa
        return x_adv

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        return self.distilled.loss(model, batch, state)

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        return self.distilled.after_step(model, batch, state, loss)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if train is None:
            return state
        kappa = train.frame.groupby("label")["kappa"].mean().reindex(range(train.num_classes)).to_numpy()
        omega = state["weight"].new_tensor(class_weights(kappa, self.exponent, self.least, self.most))
        return {**state, "weight": by_class(self.weight, train.class_names, "weight").to(omega) * omega}


def class_weights(kappa: Array, exponent: float, least: float, most: float) -> Array:
    """ω of every class; 1 where κ is not a number."""
    there = ~np.isnan(kappa)
    raw = (kappa[there] + 1e-5) ** -exponent
    omega = np.ones(len(kappa))
    omega[there] = np.clip(raw * there.sum() / raw.sum(), least, most)
    return omega
