"""ABSLD, anti-bias soft label distillation (Zhao et al., NeurIPS 2024): RSLAD with sharper labels for hard classes.

    b_adv = softmax(z_T(x)/T^adv_y),   b_nat = softmax(z_T(x)/T^nat_y)
    x' = argmax KL(b_adv ‖ p(x'))         min_θ  (1/B) Σ w_y [ λ D(b_adv, p(x')) + (1 − λ) D(b_nat, p(x)) ]
    T_k ← clip(T_k − ρ · gap_k / max_j |gap_j|, 0.5, 5),   gap_k = S_k − mean_j S_j,   after every epoch; T = 1 at first

z_T are the logits of a frozen robust teacher, D and λ = 5/6 are RSLAD's. S_k is the network's cross entropy on class k
in the training epoch just done, of adversarial images for T^adv and of clean ones for T^nat. ρ = 0.1, and a tenth of it
from the update after each of the epochs 215, 260 and 285 (of 300) on.

protocol="paper" has two temperatures. In the official code ("code") both copies of the logits share their memory, so
both labels are softmax(z_T(x)/(T^adv_y T^nat_y)). Departures: S_k is a class's mean, where that code adds up the class,
which is the same in proportion for equal classes; a class without examples keeps its temperatures; log_softmax where
that code has log of softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.records import Array, Records
from classwise.core.spec import Count, NonNegative, Positive
from classwise.methods.method import Batch, State
from classwise.methods.mtard import dropped
from classwise.methods.rslad import Rslad

PAPERS = ("zhao2024",)


@dataclass(frozen=True, kw_only=True)
class Absld(Rslad):
    """Fields of rslad; rate: ρ; drops: the epochs after which it falls to a tenth; least, most: bounds of T; protocol:
    see above."""

    rate: NonNegative = 0.1
    drops: tuple[Count, ...] = (215, 260, 285)
    least: Positive = 0.5
    most: Positive = 5.0
    protocol: Literal["paper", "code"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.least <= 1 <= self.most:
            raise UserError(f"temperatures begin at 1: least ≤ 1 ≤ most, got {self.least:g} and {self.most:g}.")

    def init(self, class_names: Sequence[str]) -> State:
        ones = torch.ones(len(class_names))
        return {**super().init(class_names), "t_adv": ones, "t_nat": ones}

    def targets(self, batch: Batch, state: State) -> tuple[Tensor, Tensor]:
        z = batch.teacher(batch.x)
        t_adv, t_nat = (state[name][batch.y][:, None] for name in ("t_adv", "t_nat"))
        return (z / t_adv, z / t_nat) if self.protocol == "paper" else (z / (t_adv * t_nat),) * 2

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if train is None:
            return state
        rate = dropped(self.rate, self.drops, epoch)
        means = train.frame.groupby("label")[["loss", "clean_loss"]].mean().reindex(range(train.num_classes))
        return {
            **state,
            "t_adv": self._moved(state["t_adv"], means["loss"].to_numpy(), rate),
            "t_nat": self._moved(state["t_nat"], means["clean_loss"].to_numpy(), rate),
        }

    def _moved(self, t: Tensor, losses: Array, rate: float) -> Tensor:
        """A step of the temperatures: down for classes of large loss, by `rate` for the one farthest from the mean."""
        gap = t.new_tensor(losses - np.nanmean(losses))
        largest = gap.abs().nan_to_num().amax()
        if not largest > 0:
            return t
        return (t - rate * gap / largest).clamp(self.least, self.most).where(~gap.isnan(), t)
