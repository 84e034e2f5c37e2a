"""PGD away from the model's clean prediction: the inner attack of TRADES (Zhang et al., ICML 2019) and its family.

    x_0     = x + 0.001·N(0,1)
    x_{t+1} = Π(x_t + α · sign ∇_{x'} KL(p(x) ‖ p(x_t)))          (for l2: ∇/‖∇‖₂ instead of the sign)

The label plays no part. p(x) does not change during the attack and is computed once; the official code computes it
again at every step, with the same result. `clamp=false` leaves the start where it falls, as that code does. Where the
rows have `clean_logits` already, such as a teacher's (RSLAD), those take the place of the model's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.attack import Model, Rows
from classwise.attacks.pgd import Pgd, Start
from classwise.core.errors import UserError
from classwise.core.losses import kl
from classwise.core.spec import Steps
from classwise.core.threat import Ball

PAPERS = ("zhang2019",)


@dataclass(frozen=True)
class KlPgd(Pgd):
    """Fields of pgd, but for a target: there is none. Without a random start the gradient is zero and nothing moves."""

    steps: Steps = 10
    start: Start = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target is not None:
            raise UserError(f"kl_pgd moves away from the clean answer and takes no target, got {self.target!r}.")
        if self.start == "none":
            raise UserError("kl_pgd needs a random start, gaussian or uniform: at the image itself its gradient is 0.")

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        if "target" in rows:
            raise UserError("kl_pgd moves away from the clean answer and takes no targets: give pgd the targets.")
        with torch.no_grad():
            clean = rows["clean_logits"] if "clean_logits" in rows else model(rows["x"])
            return super().begin(model, {**rows, "clean_logits": clean}, ball)

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        return kl(rows["clean_logits"], z)
