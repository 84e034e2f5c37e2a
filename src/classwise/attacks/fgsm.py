"""Fast gradient sign method (Goodfellow et al., ICLR 2015): one step of the whole radius.

    x' = Π(x_0 + ε · sign ∇ CE(z(x_0), y)),    x_0 = x

`start=uniform` gives the randomised form that Tian et al. (KDD 2021) evaluate with; they do not state their step.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.attacks.pgd import Pgd, Start
from classwise.core.spec import Steps

PAPERS = ("goodfellow2015",)


@dataclass(frozen=True)
class Fgsm(Pgd):
    """PGD of one step of size ε (by default) from the clean image (by default)."""

    steps: Steps = 1
    start: Start = "none"

    def default_step(self, eps: Tensor) -> Tensor:
        return eps
