"""FRL re-weight (Xu et al., ICML 2021): fine-tune TRADES under constraints on each class's clean and boundary error.

    min_θ  Σ w⁰_y CE(z(x), y) / Σ w⁰_y  +  β Σ w¹_y KL(p(x) ‖ p(x')) / Σ w¹_y                 (sums over the batch)
    s.t.   e_i − e ≤ τ1,  b_i − b ≤ τ2        e: clean error;  b: clean accuracy − PGD-20 accuracy, on validation images

Before every epoch the multipliers ascend along the violations, γ⁰_i = e_i − e − τ1 and γ¹_i = b_i − b − τ2,

    φ⁰ ← max(0, φ⁰ + r γ⁰),   φ¹ ← max(0, φ¹ + 2r γ¹),   each scaled back to a sum of at most `limit`,
    w_i = 1/C + φ_i − (1/C) Σ_j φ_j

(stored times C, so that without violations every weight is 1, as in TRADES). The defaults are the official code's:
τ1 = τ2 = 0.1, r = 0.05 with the boundary's rate twice the clean one, halved from the 40th epoch on, β = 1.5, 40 epochs
at rate 0.001 from a robust model (the recipe's model.weights). Li and Liu (AAAI 2023) compare with τ = r = 0.05.
Departure: a class without validation images keeps its multipliers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.pgd import Pgd
from classwise.core.records import CLEAN, Array, Records
from classwise.core.spec import Bounds, Count, NonNegative
from classwise.methods.method import Batch, ClassValues, Loss, State, by_class, require_validation
from classwise.methods.trades import Trades
from classwise.metrics import accuracy

PAPERS = ("xu2021",)

_ATTACK = "frl"  # PGD-20 on validation images

#: By which a class's error may exceed the overall one; below 0 it must be smaller.
Excess: TypeAlias = Annotated[float, Bounds(least=-1, most=1)]
#: On the sum of the multipliers.
Limit: TypeAlias = Annotated[float, Bounds(above=0, below=1, note="Weights are at least 1 − limit.")]


@dataclass(frozen=True, kw_only=True)
class FrlRw(Trades):
    """Fields of trades; tau1, tau2: allowed excess of a class's clean and boundary error; rate r of the multipliers,
    halved every `halve` epochs; limit of their sum. State: phi0, phi1; `weight` is w⁰ and `weight_kl` w¹."""

    beta: ClassValues = 1.5
    tau1: Excess = 0.1
    tau2: Excess = 0.1
    rate: NonNegative = 0.05
    halve: Count = 40
    limit: Limit = 0.5

    fine_tunes: ClassVar[bool] = True
    batch_wise: ClassVar[bool] = True
    validates_first = True

    def validation(self) -> Mapping[str, Attack]:
        return {_ATTACK: Pgd(steps=20)}

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        phi = {name: torch.zeros(len(class_names)) for name in ("phi0", "phi1")}
        return {**state, "weight_kl": state["weight"].clone(), **phi}

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        natural, boundary = (_normalise(state[name], batch) for name in ("weight", "weight_kl"))
        return super().loss(model, batch, {**state, "weight": natural, "beta": state["beta"] * boundary / natural})

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        valid = require_validation(valid, self)
        gamma0, gamma1 = (state["phi0"].new_tensor(gamma) for gamma in self.violations(valid))
        rate = self.rate / 2 ** ((epoch + 1) // self.halve)  # the epoch to come is number epoch + 1
        phi0 = ascend(state["phi0"], rate * gamma0, self.limit)
        phi1 = ascend(state["phi1"], 2 * rate * gamma1, self.limit)
        own = by_class(self.weight, valid.class_names, "weight").to(phi0)
        weights = {"weight": own * class_weights(phi0), "weight_kl": own * class_weights(phi1)}
        return {**state, **weights, "phi0": phi0, "phi1": phi1}

    def violations(self, valid: Records) -> tuple[Array, Array]:
        """γ⁰ and γ¹; 0 where a class has no examples."""
        clean, attacked = valid.of(CLEAN), valid.of(_ATTACK)
        natural, robust = accuracy.compute(clean).values, accuracy.compute(attacked).values
        error, boundary = 1 - clean.correct.mean(), clean.correct.mean() - attacked.correct.mean()
        return (
            np.nan_to_num(1 - natural - error - self.tau1),
            np.nan_to_num(natural - robust - boundary - self.tau2),
        )


def ascend(phi: Tensor, step: Tensor, limit: float) -> Tensor:
    """φ + step, projected back to {φ ≥ 0, Σφ ≤ limit}."""
    moved = (phi + step).clamp_min(0)
    return moved * (limit / moved.sum().clamp_min(limit))


def class_weights(phi: Tensor) -> Tensor:
    """C (1/C + φ_i − (1/C) Σ φ_j): mean 1, and at least 1 − limit."""
    return 1 + len(phi) * phi - phi.sum()


def _normalise(weight: Tensor, batch: Batch) -> Tensor:
    """The weights divided by their mean over the batch: the batch's average is then Σ w ℓ / Σ w."""
    return weight / batch.average(weight[batch.y].mean())
