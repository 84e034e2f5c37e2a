"""HAM, hard adversarial example mining (Lin et al., TIFS 2025): images that withstand the first steps are dropped.

    H = {i: x_i is misclassified after s steps of PGD on CE};     x'_i for i in H: the attack goes on to its last step
    min_θ  (1/|H|) Σ_{i ∈ H} w_y CE(z(x'_i), y_i)

PGD training (`madry`) until `begin` epochs are done. Only the images of H go through the network in train mode; where
batch-norm would see fewer than two, or a process has none, all images do, those outside H without a loss. A batch with
an empty H has the loss 0. s = 3 of ten steps, weights of 1 in H (the paper's abstract speaks of re-weighting, which is
commented out) and the beginning with the 50th of 120 epochs are the official code's. The training records of a dropped
image are those of the point after step s, from the network in eval mode; their column `kept` is 1 in H and 0 elsewhere.
With several processes |H| is that of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Model, Rows
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.spec import Natural, Steps
from classwise.core.threat import Ball
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, craft, logits

PAPERS = ("lin2025",)

_KEPT = "kept"


@dataclass(frozen=True, kw_only=True)
class Ham(Madry):
    """Fields of madry; check: s, the step after which images still classified correctly are dropped; begin: epochs of
    PGD training before that."""

    check: Steps = 3
    begin: Natural = 49

    batch_wise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check > self.steps:
            raise UserError(f"check must be at most steps, {self.steps}, got {self.check}: it is one of those steps.")

    def idle_epochs(self) -> int:
        return self.begin

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        if batch.epoch < self.begin:
            return super().attack(model, batch, state)
        attacked = self.attacked(model, batch)
        x_adv = craft(self.pgd(Pgd, steps=self.check), attacked, batch, state)
        with torch.no_grad():
            kept = attacked(x_adv).argmax(1) != batch.y
        batch.columns[_KEPT] = kept.to(batch.eps)
        if self.check == self.steps:
            return x_adv
        onwards = self.pgd(_Onwards, steps=self.steps - self.check)
        if self.mode == "train":
            passed = self._passed(kept, batch)
            further = craft(onwards, attacked, batch.take(passed), state, columns={"begun": x_adv[passed]})
            x_adv[kept] = further[kept[passed]]
        elif kept.any():
            x_adv[kept] = craft(onwards, attacked, batch.take(kept), state, columns={"begun": x_adv[kept]})
        return x_adv

    def _passed(self, kept: Tensor, batch: Batch) -> Tensor:
        """Which images go through the network in train mode: those of H, or all where batch-norm would see fewer than
        two, or a process has none."""
        together = batch.normed_together(kept.sum())
        return kept if kept.any() and together > 1 else torch.ones_like(kept)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        kept = batch.columns.get(_KEPT, torch.ones_like(batch.eps)) > 0
        passed = self._passed(kept, batch)
        found = super().loss(model, batch.take(passed), state)
        share = batch.average(kept.to(found.value).mean())
        value = found.value.new_zeros(len(kept)).masked_scatter(passed, found.value)
        value = value * torch.where(kept, 1 / share, 0.0)
        return Loss(value, self._every_logit(batch, state, passed, found.logits))

    @torch.no_grad()
    def _every_logit(self, batch: Batch, state: State, passed: Tensor, found: Tensor) -> Tensor:
        """Logits for the records: of what went through the network in train mode, and of the rest in eval mode."""
        if passed.all():
            return found
        every, rest = found.new_zeros(len(passed), found.shape[1]), batch.take(~passed)
        every[passed] = found
        every[~passed] = logits(batch.fast, rest.adversarial, rest, state).to(every)
        return every


@dataclass(frozen=True)
class _Onwards(Pgd):
    """pgd that starts where another one ended: at the rows' `begun`."""

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": rows["begun"]}
