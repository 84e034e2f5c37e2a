"""Fast adversarial training, FGSM-RS (Wong et al., ICLR 2020): one large step from a uniformly random start.

    x_0 = Π(x + U(−ε, ε))          x' = Π(x_0 + 1.25 ε · sign ∇ CE(z(x_0), y))          min_θ  (1/B) Σ w_y CE(z(x'), y)

1.25 ε is the official 10/255 at ε = 8/255 and 2.5/255 at 2/255. The network is attacked in train mode, as there. The
official cyclic learning rate, image sizes that grow on ImageNet, and the early stop when PGD suddenly succeeds
(catastrophic overfitting) are settings of the training, not of the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from classwise.attacks.attack import Attack
from classwise.attacks.pgd import Pgd
from classwise.core.spec import Steps
from classwise.methods.madry import Madry

PAPERS = ("wong2020",)


@dataclass(frozen=True, kw_only=True)
class Fast(Madry):
    """Fields of madry with FGSM-RS's defaults; step: 1.25 ε where none is given."""

    steps: Steps = 1
    mode: Literal["eval", "train"] = "train"

    def inner(self) -> Attack:
        return self.pgd(_LargeStepPgd)


@dataclass(frozen=True)
class _LargeStepPgd(Pgd):
    def default_step(self, eps: Tensor) -> Tensor:
        return 1.25 * eps
