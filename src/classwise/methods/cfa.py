"""CFA, class-wise calibrated fair adversarial training (Wei et al., CVPR 2023): radii and β by class accuracy.

    ε_k = (λ1 + t_k) ε        (CCM)            β_k = (λ2 + t_k) β        (CCR, TRADES only)
    min_θ  (1/B) Σ [ CE(z(x), y) + β_y KL(p(x) ‖ p(x')) ] / (1 + β_y)          base="trades"
    min_θ  (1/B) Σ CE(z(x'), y)                                                base="madry", "fat"

t_k is class k's adversarial accuracy in the training epoch just done. The paper's λ1 is 0.5 for PGD training, 0.3 for
TRADES and 0.7 for FAT, its λ2 0.5; the official code has 0.5 for all and, unlike the paper, begins after ten epochs:
those are the defaults. A model that is fine-tuned can begin at once, begin=0: with validate.first, t_k of the first
epoch is the class's robust accuracy on the held-out images. Until then the loss is TRADES' divided by 1 + β, as in that
code. The step is not scaled with the radius. That code's PGD variants start uniformly and attack in train mode:
start="uniform", mode="train". "fat" is friendly adversarial training (Zhang et al., ICML 2020): an image's attack stops
once it has made `tau` steps from points that are misclassified. As in CFA's code an image that has stopped stays so,
and is part of the batch that the others are attacked in; in FAT's own code one that is classified correctly again goes
on.

After every step that code passes the clean batch through the network once more, in train mode and with the new weights.
It is for its log, but batch-norm's running statistics move: clean_pass=true does the same. The paper's third part,
averaging weights only after epochs with an accurate worst class (FAWA), is the recipe's averaging. Departures:
accuracies are divided by each class's own count, and a class without examples keeps its values; base="fat" makes one
pass less in train mode, that of the last point, which that code makes twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack, Model, Rows
from classwise.attacks.pgd import Pgd
from classwise.core.records import Records
from classwise.core.spec import Count, Natural, NonNegative
from classwise.core.threat import Ball, choose
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, craft, latest_records
from classwise.methods.trades import Trades
from classwise.metrics import accuracy

PAPERS = ("wei2023",)


@dataclass(frozen=True, kw_only=True)
class Cfa(Trades):
    """Fields of trades; base: the method calibrated; ccm, ccr: which parts; begin: epochs before they start; tau: of
    fat; clean_pass: whether batch-norm sees the clean images after every step."""

    base: Literal["trades", "madry", "fat"] = "trades"
    ccm: bool = True
    ccr: bool = True
    lambda1: NonNegative = 0.5
    lambda2: NonNegative = 0.5
    begin: Natural = 10
    tau: Count = 3
    clean_pass: bool = False

    def idle_epochs(self) -> int:
        return self.begin

    def inner(self) -> Attack:
        if self.base == "fat":
            return self.pgd(_FriendlyPgd, tau=self.tau)
        return super().inner() if self.base == "trades" else Madry.inner(self)

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        return {**state, "weight": state["weight"] * self._scale(state["beta"])}

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        step = float(batch.eps.amax()) / 4 if self.step is None else self.step
        return craft(dataclasses.replace(self, step=step).inner(), self.attacked(model, batch), batch, state)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        return super().loss(model, batch, state) if self.base == "trades" else Madry.loss(self, model, batch, state)

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        if self.clean_pass:
            model(batch.x)
        return state

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        records = latest_records(train, valid)
        if records is None or epoch < self.begin:
            return state
        t = state["weight"].new_tensor(accuracy.compute(records).values)
        start = {name: value.to(t) for name, value in super().init(records.class_names).items()}
        new = dict(state)
        if self.ccm:
            new["margin"] = (start["margin"] * (self.lambda1 + t)).where(~t.isnan(), state["margin"])
        if self.ccr and self.base == "trades":
            new["beta"] = (start["beta"] * (self.lambda2 + t)).where(~t.isnan(), state["beta"])
            new["weight"] = start["weight"] * self._scale(new["beta"])
        return new

    def _scale(self, beta: Tensor) -> Tensor | float:
        return 1 / (1 + beta) if self.base == "trades" else 1.0


@dataclass(frozen=True)
class _FriendlyPgd(Pgd):
    """pgd that moves an image on only until `tau` of its steps began at misclassified points."""

    tau: int = 3

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        rows = super().begin(model, rows, ball)
        return {**rows, "left": torch.full_like(rows["y"], self.tau), "done": torch.zeros_like(rows["y"]).bool()}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        moved = super().advance(model, rows, ball)
        left = rows["left"] - (~rows["done"] & (moved["logits"].argmax(1) != rows["y"])).long()
        return {**moved, "x_adv": choose(rows["done"], rows["x_adv"], moved["x_adv"]), "left": left, "done": left == 0}
