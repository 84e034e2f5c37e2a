"""PGD adversarial training (Madry et al., ICLR 2018): train on the worst points that PGD finds in the ball.

    x' = PGD(x; CE)                min_θ  (1/B) Σ w_y CE(z(x'), y)

Tian et al. (KDD 2021): ten steps of 0.007 at ε = 0.031 from a uniform start. Code bases differ in the mode
of the attacked network: `mode="eval"` (TRADES' family; batch norm as in inference, and faster) or `"train"` (CFA,
fast_adversarial: the running statistics then absorb every iterate). `start="gaussian"` is what HE's baseline uses; as
in its code such a start is not clamped to [0,1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from classwise.attacks.attack import Attack, Model
from classwise.attacks.pgd import Pgd, Start
from classwise.core.losses import cross_entropy
from classwise.core.spec import Positive, Steps
from classwise.methods.method import Batch, Loss, Method, State, craft, logits

PAPERS = ("madry2018",)


@dataclass(frozen=True, kw_only=True)
class Madry(Method):
    """steps, step (default ε/4), start: of the inner attack; mode: of the network while it is attacked."""

    steps: Steps = 10
    step: Positive | None = None
    start: Start = "uniform"
    mode: Literal["eval", "train"] = "eval"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inner()  # whose own checks cover the fields

    def inner(self) -> Attack:
        """The inner attack."""
        return self.pgd(Pgd)

    def pgd(self, kind: type[Pgd], **more: Any) -> Pgd:
        """An attack with the method's steps and start, and what else it takes. A Gaussian start is not clamped."""
        given = {"steps": self.steps, "step": self.step, "start": self.start, "clamp": self.start != "gaussian"}
        return kind(**{**given, **more})

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        return craft(self.inner(), self.attacked(model, batch), batch, state)

    def attacked(self, model: nn.Module, batch: Batch) -> Model:
        """What the inner attack differentiates: the current weights in eval mode, or the model as it trains."""
        return batch.fast if self.mode == "eval" else model

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z = logits(model, batch.adversarial, batch, state)
        return Loss(state["weight"][batch.y] * cross_entropy(z, batch.y, smoothing=batch.smoothing), z)
