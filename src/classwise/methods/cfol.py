"""CFOL, class-focused online learning (Pethick et al., TMLR 2023): classes that fail are drawn, or weighed, more often.

    p = γ/C + (1 − γ) softmax(w),  w = 0 at the start;        w_{y_i} ← w_{y_i} + η 1[argmax z(x'_i) ≠ y_i] / s_{y_i}
    x' = PGD(x; CE)

    form=sampling      class ~ p, one of its images, with replacement    min_θ (1/B) Σ CE(z(x'), y)                s = p
    form=reweighted    batches as in any training                        min_θ (1/B) Σ (p_y / π_y) CE(z(x'), y)    s = π

π_y is the class's share of the training images. w moves after every batch, by the sum over the batch with p as it was
drawn: this is the exponential-weights (Exp3) opponent, which sees a class's error only as often as the class is drawn.
In expectation either form adds η N err_k to w_k in an epoch of N draws, so η·N·epochs is what to keep where the data or
the length of the training change: 40 in the authors' training of 200 epochs of 40,000 images with η = 5e-6, the
default (the recipes for small data scale η by it). γ = 1/2 is theirs: no class is drawn less than half as often as in
plain training.

Departures: π is counted in the first epoch and 1/C until then, where the official code takes equal classes; the attack
hands over its last iterate (the code's "best" one compares the loss of the whole batch before a step with images after
it); there is no temporal ensembling. The paper writes the update with the sign of a loss and means ascent, as the code
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from classwise.core.records import Records
from classwise.core.spec import NonNegative, Share
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State

PAPERS = ("pethick2023",)


@dataclass(frozen=True, kw_only=True)
class Cfol(Madry):
    """Fields of madry; form; eta: the opponent's step for one image; gamma: the uniform part of p.

    State: w, p, and share, π of every class (1/C until the first epoch is done).
    """

    form: Literal["sampling", "reweighted"] = "sampling"
    eta: NonNegative = 5e-6
    gamma: Share = 0.5

    def init(self, class_names: Sequence[str]) -> State:
        zeros = torch.zeros(len(class_names))
        uniform = zeros + 1 / len(class_names)
        return {**super().init(class_names), "w": zeros, "p": uniform, "share": uniform.clone()}

    def balances(self) -> bool:
        return True

    def sampling(self, state: State) -> Tensor | None:
        return state["p"] if self.form == "sampling" else None

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        if self.form == "sampling":
            return super().loss(model, batch, state)
        weight = state["weight"] * state["p"] / state["share"]
        return super().loss(model, batch, {**state, "weight": weight})

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        seen = state["p"] if self.form == "sampling" else state["share"]
        wrong = (loss.logits.argmax(1) != batch.y).to(state["w"])
        failed = batch.total(torch.zeros_like(state["w"]).index_add(0, batch.y, wrong))
        w = state["w"] + self.eta * failed / seen
        return {**state, "w": w, "p": self.gamma / len(w) + (1 - self.gamma) * torch.softmax(w, 0)}

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if train is None or self.form == "sampling" or epoch != 1:
            return state
        count = state["share"].new_tensor(np.bincount(train.label, minlength=train.num_classes))
        return {**state, "share": (count / count.sum()).where(count > 0, state["share"])}
