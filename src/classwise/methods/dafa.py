"""DAFA, distance-aware fair adversarial training (Lee et al., ICLR 2024): hard classes gain what similar ones lose.

    S_ij = mean of p_j(x') over class i, in epoch τ
    W_i  = 1 + λ Σ_{j: S_jj > S_ii} S_ij S_jj − λ Σ_{j: S_jj < S_ii} S_ji S_ii
    min_θ  (1/B) Σ [ W_y CE(z(x), y) + β KL(p(x) ‖ p(x')) ],      radius W_y ε and step W_y α,      from epoch τ+1 on

What one class of a pair gains the other loses, so ΣW = C. TRADES until then. λ = 1 for CIFAR-10, 1.5 for CIFAR-100 and
STL-10; τ = 70 of 110 epochs. A robust model that is fine-tuned has its warm-up behind it: with τ = 0 S is taken from
the attacked held-out images before the first epoch. The loss is TRADES' with weight W_y and β/W_y. As in the official
code the start is not clamped to [0,1], and the adversarial images go through the network before the clean ones.
Departures: two classes of exactly equal S_ii do not affect each other (in the official code both lose); and where λ
would bring a weight, and with it a radius, below 0.05, as it can with unequal classes, the largest λ that does not is
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from classwise.attacks.kl_pgd import KlPgd
from classwise.core.errors import UserError
from classwise.core.records import Array, Records
from classwise.core.spec import Natural, NonNegative
from classwise.methods.method import Batch, State, craft, latest_records
from classwise.methods.trades import Trades
from classwise.stats.intervals import ratio

PAPERS = ("lee2024",)

_LEAST = 0.05  # weight


@dataclass(frozen=True, kw_only=True)
class Dafa(Trades):
    """Fields of trades; warmup: the epoch τ whose predictions make the weights, 0 for those of the model that is
    fine-tuned; strength: λ."""

    warmup: Natural = 70
    strength: NonNegative = 1.0

    reads_probs: ClassVar[bool] = True
    first_pass: ClassVar[Literal["clean", "adversarial"]] = "adversarial"

    @property
    def validates_first(self) -> bool:
        return self.warmup == 0

    def idle_epochs(self) -> int:
        return self.warmup

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        if self.step is None:  # then it is a quarter of the radius, and so in proportion already
            return super().attack(model, batch, state)
        share = self.step / float(batch.eps.amax())
        inner = self.pgd(_Proportional, step=None, share=share)
        return craft(inner, self.attacked(model, batch), batch, state)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        records = latest_records(train, valid)
        if records is None or epoch != self.warmup:
            return state
        w = state["weight"].new_tensor(class_weights(similarity(records), self.strength))
        return {**state, "weight": state["weight"] * w, "margin": state["margin"] * w, "beta": state["beta"] / w}


def similarity(records: Records) -> Array:
    """S; the row of a class without examples is 0."""
    if records.probs is None:
        raise UserError("dafa needs the probabilities of its records (Method.reads_probs).")
    member = np.eye(records.num_classes)[records.label]
    return np.nan_to_num(ratio(member.T @ records.probs, member.sum(0)[:, None]))


def class_weights(s: Array, strength: float) -> Array:
    """W of every class."""
    own = np.diag(s)
    gain = np.where(own[:, None] < own, s * own, 0.0)  # what i gains from j
    direction = gain.sum(1) - gain.sum(0)
    most = (1 - _LEAST) / max(-direction.min(), np.finfo(np.float64).tiny)
    return np.asarray(1 + min(strength, most) * direction)


@dataclass(frozen=True)
class _Proportional(KlPgd):
    """kl_pgd whose step is a share of each example's radius."""

    share: float = 0.25

    def default_step(self, eps: Tensor) -> Tensor:
        return self.share * eps
