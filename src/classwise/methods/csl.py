"""Cost-sensitive learning (Benz et al., 2020): TRADES with larger weights for less accurate classes.

    min_θ  (1/B) Σ w_y [ CE(z(x), y) + β_y KL(p(x) ‖ p(x')) ]  +  λ · mean_{i<j} cos(z̄_i, z̄_j)

The paper is a pre-registration: it announces higher weights for vulnerable classes and states no rule. Here are three;
a_c is a class's robust accuracy after the last epoch, ā the classes' mean.

    multiplicative   w_c ← w_c · exp(η (ā − a_c))                                                η = `rate`
    inverse          w_c ∝ 1 / max(a_c, `floor`)
    lagrangian       φ_c ← max(0, φ_c + η (ā − a_c − τ)), Σφ ≤ `limit`; w_c = 1 + Cφ_c − Σφ      τ = `tolerance`; as FRL

Weights have mean 1. Li and Liu (AAAI 2023) run CSL with one setting of 0.05, whose meaning they do not say; it is the
default of all. The paper's two scenarios: all classes are to be equal, or one class is `critical`. Then only its weight
is raised, and all others stay 1: ā becomes the best class's accuracy, and the rules read w ← w·exp(η (a_best − a_c)),
w = a_best / max(a_c, floor), and φ ← min(limit, max(0, φ + η (a_best − a_c − τ))) with w = 1 + Cφ.

Regulariser: z̄_c is the average adversarial logit vector of class c in the batch, over all processes that share it; a
class absent from the batch is in no pair, and without two classes the term is 0. Targeted training: x' comes from PGD
towards another class and the label stays y. "weakest" is the paper's: the critical class, else the one of lowest a_c,
is every other class's target; its own images, and all before there are accuracies, are attacked as in TRADES.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.pgd import Pgd
from classwise.core.records import Records
from classwise.core.spec import NonNegative, PositiveShare
from classwise.core.threat import choose
from classwise.methods.batch_classes import of_class_means
from classwise.methods.frl_rw import Excess, Limit, ascend, class_weights
from classwise.methods.method import Batch, Loss, State, attacked_rows, by_class, craft, require_validation
from classwise.methods.trades import Trades
from classwise.metrics import accuracy

PAPERS = ("benz2020",)


@dataclass(frozen=True, kw_only=True)
class Csl(Trades):
    """Fields of trades; rule and its settings; source of the accuracies: records of the recipe's validation attack (the
    worst of several), or of training; critical: a class's name or number; cosine: λ; target: see above."""

    rule: Literal["multiplicative", "inverse", "lagrangian"] = "multiplicative"
    rate: NonNegative = 0.05
    floor: PositiveShare = 0.05
    tolerance: Excess = 0.05
    limit: Limit = 0.5
    source: Literal["valid", "train"] = "valid"
    critical: str | None = None
    cosine: NonNegative = 0.0
    target: Literal["random", "likely", "unlikely", "weakest"] | None = None

    def needs_validation(self) -> bool:
        return self.source == "valid"

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        aim = -1 if self.critical is None else int(self._critical_mask(class_names).argmax())
        ones = torch.ones(len(class_names))
        return {**state, "factor": ones, "phi": torch.zeros_like(ones), "aim": torch.tensor(aim)}

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        aim = int(state["aim"])
        if self.target is None or (self.target == "weakest" and aim < 0):
            return super().attack(model, batch, state)
        target = aim if self.target == "weakest" else self.target
        x_adv = craft(self.pgd(Pgd, target=target), self.attacked(model, batch), batch, state)
        own = batch.y == aim
        if self.target != "weakest" or (self.mode == "eval" and not own.any()):
            return x_adv
        if self.mode == "train":  # where batch-norm sees the whole batch, and every process makes the same passes
            return choose(own, super().attack(model, batch, state), x_adv)
        x_adv[own] = super().attack(model, batch.take(own), state)
        return x_adv

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        found = super().loss(model, batch, state)
        if not self.cosine:
            return found
        term = of_class_means(mean_cosine, found.logits, batch, len(state["weight"]))
        return found._replace(value=found.value + self.cosine * term)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if self.source == "valid":
            records = attacked_rows(require_validation(valid, self, ", or method.source to train"))
        elif train is not None:
            records = train
        else:
            return state
        found = accuracy.compute(records)
        others = np.nanmean(found.values) if self.critical is None else np.nanmax(found.values)
        a = state["phi"].new_tensor(np.where(found.support > 0, found.values, others))
        raised = torch.ones_like(a) if self.critical is None else self._critical_mask(records.class_names).to(a)
        factor, phi = self._apply_rule(state, a, float(others), raised)
        aim = state["aim"] if self.critical is not None else state["aim"].new_tensor(found.worst)
        own = by_class(self.weight, records.class_names, "weight").to(a)
        return {**state, "weight": own * factor, "factor": factor, "phi": phi, "aim": aim}

    def _apply_rule(self, state: State, a: Tensor, others: float, raised: Tensor) -> tuple[Tensor, Tensor]:
        """The rule: the new factor of each class, and φ. `raised` is 1 for the classes it applies to, else 0."""
        phi = state["phi"]
        if self.rule == "lagrangian":
            phi = ascend(phi, self.rate * (others - a - self.tolerance) * raised, self.limit)
            return (class_weights(phi) if self.critical is None else 1 + len(phi) * phi), phi
        if self.rule == "inverse":
            factor = max(others, self.floor) / a.clamp_min(self.floor)
        else:
            factor = state["factor"] * (self.rate * (others - a)).exp()
        if self.critical is None:
            return factor / factor.mean(), phi
        return torch.where(raised > 0, factor, 1.0), phi

    def _critical_mask(self, class_names: Sequence[str]) -> Tensor:
        """1 for the critical class, 0 for the others."""
        return by_class({str(self.critical): 1.0}, class_names, "critical", otherwise=0.0)


def mean_cosine(means: Tensor, counts: Tensor) -> Tensor:
    """The mean cosine between the average logit vectors of two classes, over all pairs of classes in the batch."""
    mean = F.normalize(means[counts > 0], dim=1)
    pairs = len(mean) * (len(mean) - 1)
    similarity = mean @ mean.T
    return (similarity.sum() - similarity.diagonal().sum()) / max(pairs, 1)
