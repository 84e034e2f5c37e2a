"""Hypersphere embedding (Pang et al., NeurIPS 2020): adversarial training of cosines z, scaled and with a margin.

    HE(z, y; s, m) = −log e^{s(z_y − m)} / (e^{s(z_y − m)} + Σ_{j≠y} e^{s z_j}) = CE(s·(z − m·onehot(y)), y)

    base=madry     x' = PGD(x; CE(s z))              min_θ  (1/B) Σ w_y HE(z(x'), y; s, m)
    base=trades    x' = argmax KL(p(x) ‖ p(x'))      min_θ  (1/B) Σ w_y [ HE(z(x), y; s, m) + β_y KL(p(x) ‖ p(x')) ]

with p = softmax(s z): only the outer HE has the margin. Defaults are the official README's: s = 10 for madry and 15 for
trades, m = 0.2, β = 6. The start is not clamped to [0,1], as there. Departure: a log-softmax where the official code
exponentiates, which overflows from s ≈ 88 on. A class's temperature T_y divides s.

The model itself returns the cosines without s (``resnet-18:head=cosine`` does), and that is what an audit attacks. With
s = 1 no probability of ten classes exceeds 0.25, which weakens attacks on cross entropy: a model looks more robust than
it is. Audit it with temperature_pgd and margin_pgd too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.attack import Attack, Model
from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import Start
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy, kl
from classwise.core.spec import Bounds, Positive
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, ClassValues, Loss, State, by_class, craft

PAPERS = ("pang2020",)

_SCALES = {"madry": 10.0, "trades": 15.0}
_BETA = 6.0

AngularMargin: TypeAlias = Annotated[float, Bounds(least=0, most=2, note="It is a difference of cosines.")]


@dataclass(frozen=True, kw_only=True)
class He(Madry):
    """Fields of madry, and: base, the method whose inner and outer problem it is. scale: s (default 10 for madry, 15
    for trades). angular_margin: m. beta: of trades."""

    start: Start = "gaussian"
    base: Literal["madry", "trades"] = "madry"
    scale: Positive | None = None
    angular_margin: AngularMargin = 0.2
    beta: ClassValues = _BETA

    def inner(self) -> Attack:
        return self.pgd(KlPgd) if self.base == "trades" else super().inner()

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        return {**state, "beta": by_class(self.beta, class_names, "beta", _BETA)} if self.base == "trades" else state

    def scale_at(self, batch: Batch, cosines: Callable[[], Tensor]) -> Tensor | float:
        """s: one number, or one for each example of the batch, whose cosines can be had by asking."""
        return _SCALES[self.base] if self.scale is None else self.scale

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        attacked = self.attacked(model, batch)
        return craft(self.inner(), attacked, batch, state, self.scale_at(batch, lambda: attacked(batch.x)))

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = self._cosines(model, batch)
        scale = self.scale_at(batch, z.detach)
        s = (scale / state["temperature"][batch.y])[:, None]
        with_margin = s * (z - self.angular_margin * F.one_hot(batch.y, z.shape[1]))
        value = cross_entropy(with_margin, batch.y, smoothing=batch.smoothing)
        if self.base == "trades":
            value = value + state["beta"][batch.y] * kl(s * z, s * z_adv)
        return Loss(state["weight"][batch.y] * value, s * z_adv)

    def _cosines(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """The cosines that HE is taken of, and those of the adversarial images: on PGD-AT they are the same."""
        if self.base == "madry":
            z = z_adv = model(batch.adversarial)
        elif batch.joint:
            z, z_adv = model(torch.cat([batch.x, batch.adversarial])).chunk(2)
        else:
            z, z_adv = model(batch.x), model(batch.adversarial)
        _check_cosines(z)
        return z, z_adv


def _check_cosines(z: Tensor) -> None:
    largest = float(z.detach().abs().amax())
    if largest > 1 + max(1e-4, 4 * torch.finfo(z.dtype).eps):
        raise UserError(
            f"hypersphere embedding trains cosines, from -1 to 1, but the model's outputs reach {largest:.3g}. "
            "Give the model a cosine head: a built-in network takes head=cosine, such as resnet-18:head=cosine."
        )
