"""FAT with a variance penalty (Ma et al., NeurIPS 2022): adversarial training that keeps the class losses together.

    L_k = mean of CE(z(x'), y) over class k in the batch
    min_θ  (1/B) Σ w_y [ ℓ(x, x', y) + α Var_k(L_k) ]             Var with divisor (number of classes − 1)
    ℓ = CE(z(x'), y)                              or, base="trades",   CE(z(x), y) + β_y KL(p(x) ‖ p(x'))

x' is that of PGD on CE for both (wzekai99/FAT, pgd_var.py and trades_var.py); α = 0.1 and β = 6 are that code's. It
keeps the class losses in a vector of 100 numbers whatever the data set, so on CIFAR-10 the variance is that of ten
losses and ninety zeros, and so does a class that is absent from the batch count as 0. Its gradient is positive for
every class then: the penalty acts on the size of the losses, not on their spread. `over="hundred"` reproduces that; the
default takes the classes present in the batch. With several processes the class means are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.pgd import Start
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.spec import NonNegative
from classwise.methods.batch_classes import of_class_means
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State
from classwise.methods.trades import Trades

PAPERS = ("ma2022",)

_HUNDRED = 100


@dataclass(frozen=True, kw_only=True)
class FatVar(Trades):
    """Fields of trades; base: the loss that is penalised; alpha: α; over: the classes of the variance."""

    start: Start = "uniform"
    base: Literal["madry", "trades"] = "madry"
    alpha: NonNegative = 0.1
    over: Literal["present", "hundred"] = "present"

    first_pass: ClassVar[Literal["clean", "adversarial"]] = "adversarial"
    batch_wise: ClassVar[bool] = True

    def init(self, class_names: Sequence[str]) -> State:
        if self.over == "hundred" and len(class_names) > _HUNDRED:
            raise UserError(f"over=hundred takes at most 100 classes, got {len(class_names)}: set over to present.")
        return super().init(class_names)

    def inner(self) -> Attack:
        return Madry.inner(self)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        plain = super().loss if self.base == "trades" else super(Trades, self).loss
        found = plain(model, batch, state)
        losses = cross_entropy(found.logits, batch.y)
        penalty = of_class_means(self._variance, losses, batch, len(state["weight"]))
        return found._replace(value=found.value + state["weight"][batch.y] * (self.alpha * penalty))

    def _variance(self, means: Tensor, counts: Tensor) -> Tensor:
        if self.over == "hundred":
            return torch.cat([means, means.new_zeros(_HUNDRED - len(means))]).var()
        seen = means[counts > 0]
        return seen.var() if len(seen) > 1 else 0 * seen.sum()
