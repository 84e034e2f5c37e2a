"""FRL re-weight and re-margin (Xu et al., ICML 2021): frl_rw, and a larger radius where the boundary error is large.

    φ²_i ← φ²_i + r₂ γ¹_i,      ε_i = ε · clip(exp(2 φ²_i), 0.98, 3)

φ² may fall below 0 and is not rescaled. As in the official code all images of a batch have one step size, a quarter of
the largest radius in the batch; `step_rule="own"` gives each a quarter of its own. The other defaults are that code's
too: τ1 = τ2 = 0.07, r₂ = 0.2. Li and Liu (AAAI 2023) compare with τ and rates of 0.05.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.core.spec import NonNegative, Positive
from classwise.methods.frl_rw import Excess, FrlRw
from classwise.methods.method import Batch, State, by_class, craft, require_validation

PAPERS = ("xu2021",)


@dataclass(frozen=True, kw_only=True)
class FrlRwrm(FrlRw):
    """Fields of frl_rw; rate2 r₂ of the margins, their bounds, and the step rule (a given `step` overrules it)."""

    tau1: Excess = 0.07
    tau2: Excess = 0.07
    rate2: NonNegative = 0.2
    bounds: tuple[Positive, Positive] = (0.98, 3.0)
    step_rule: Literal["batch_max", "own"] = "batch_max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.bounds) != 2 or self.bounds[0] > self.bounds[1]:
            raise UserError(f"bounds must be the least and the largest margin, such as 0.98|3; got {self.bounds}.")

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "phi2": torch.zeros(len(class_names))}

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        if self.step is not None or self.step_rule == "own":
            return super().attack(model, batch, state)
        # Classes are counted over all processes that share the batch, so that all take the same step.
        present = batch.average(torch.bincount(batch.y, minlength=len(state["margin"])).float()) > 0
        step = float(state["margin"][present].amax() * batch.eps.amax()) / 4
        inner = dataclasses.replace(self, step=step).inner()
        return craft(inner, self.attacked(model, batch), batch, state)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        state = super().update(state, train, valid, epoch)
        valid = require_validation(valid, self)
        phi2 = state["phi2"] + self.rate2 * state["phi2"].new_tensor(self.violations(valid)[1])
        own = by_class(self.margin, valid.class_names, "margin").to(phi2)
        return {**state, "phi2": phi2, "margin": own * (2 * phi2).exp().clamp(*self.bounds)}
