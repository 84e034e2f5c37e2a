"""FAIR-TAT (Medi, Jung and Keuper, WACV 2025): adversarial training with targets that errors go to, and class radii.

    x'_i = PGD(x_i; towards y_t),   y_t ~ softmax(2 CFPS) without y_i             min_θ  (1/B) Σ w_y CE(z(x'), y)
    CFPS_k = share of the misclassified training images that are predicted as k            ε_k = (λ + t_k) ε

CFPS and t_k, class k's accuracy on its adversarial images, are those of the training epoch just done; in the first
epoch targets are uniform and radii ε. The step is not scaled with the radius. All is the official code's, as are
λ = 0.5, PGD in train mode from a uniform start, and the factor 2, with which no target is much likelier than another
(about 1.3 times, for realistic shares). That code refreshes the targets only where it also adapts the radii; otherwise
they stay uniform (`targets="uniform"`). `targets="share"`, drawing by CFPS itself, is ours. Its pass of the clean
batch, unused, before the step and another after it move batch-norm's running statistics only: `passes=3` makes them.
The paper averages weights after epochs with an accurate worst class, which is the recipe's averaging (fawa).
Departures: a target is never the label itself (that code keeps such a target where it is the only one of its batch); a
class without examples keeps its radius, and where nothing is misclassified the targets stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from classwise.attacks.pgd import draw_target
from classwise.core.records import Records
from classwise.core.spec import NonNegative
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, craft
from classwise.metrics import accuracy, false_positive_share

PAPERS = ("medi2025fairtat",)


@dataclass(frozen=True, kw_only=True)
class FairTat(Madry):
    """Fields of madry; targets: how they are drawn; sharpness: the factor 2; radii: whether ε_k adapts; offset: λ;
    passes: how often batch-norm sees a batch in train mode, or the official code's 3. State: `target`, the
    probability of each target."""

    mode: Literal["eval", "train"] = "train"
    targets: Literal["softmax", "share", "uniform"] = "softmax"
    sharpness: NonNegative = 2.0
    radii: bool = True
    offset: NonNegative = 0.5
    passes: Literal[1, 3] = 1

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        return {**state, "target": torch.full_like(state["weight"], 1 / len(class_names))}

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        step = float(batch.eps.amax()) / 4 if self.step is None else self.step
        inner, target = dataclasses.replace(self, step=step).inner(), draw_target(batch.key, batch.y, state["target"])
        return craft(inner, self.attacked(model, batch), batch, state, columns={"target": target})

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        found = super().loss(model, batch, state)
        self._clean_pass(model, batch)
        return found

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        self._clean_pass(model, batch)
        return state

    def _clean_pass(self, model: nn.Module, batch: Batch) -> None:
        if self.passes == 3:
            with torch.no_grad():
                model(batch.x)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if train is None:
            return state
        new, share = dict(state), state["target"].new_tensor(false_positive_share.compute(train).values)
        if self.targets != "uniform" and not share.isnan().any():
            new["target"] = (self.sharpness * share).softmax(0) if self.targets == "softmax" else share
        if self.radii:
            t = state["margin"].new_tensor(accuracy.compute(train).values)
            start = super().init(train.class_names)["margin"].to(t)
            new["margin"] = (start * (self.offset + t)).where(~t.isnan(), state["margin"])
        return new
