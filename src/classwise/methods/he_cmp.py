"""Hypersphere embedding with a controlled maximum probability, which grows with the epochs (Tian et al. 2020, app. G).

    s_i solves  max_k softmax(s z_i)_k = P_n,      P_n = P_0 + (n / n_FI) (P_FI − P_0),  and P_FI from n_FI on
    P_0 = 0.2,  P_FI = 1,  n_FI = 0.9 of all epochs,  n = whole epochs done

On PGD-AT and without angular margin, as the paper has it, which leaves the rest open. Choices made here:

    - one s for each example (`per=example`), or one for the batch, solved for its mean gaps of cosines (`per=batch`);
    - the loss takes s of the cosines it is made of (on PGD-AT the adversarial ones), the attack s of the clean ones;
    - no gradient passes through s;
    - P = 1 needs an infinite s: P is at most `p_cap` and s at most `scale_cap`;
    - solved by Newton's method and not by Powell's dogleg: the same root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.spec import Bounds, Positive, PositiveShare
from classwise.methods.he import AngularMargin, He
from classwise.methods.he_lis import interpolated, refuse_scale
from classwise.methods.method import Batch, State

PAPERS = ("pang2020", "tian2020")

_STEPS = 20  # of Newton's method
_TINY = torch.finfo(torch.float32).tiny  # where all classes tie


@dataclass(frozen=True, kw_only=True)
class HeCmp(He):
    """Fields of he but for scale, and: first_p: P_0. last_p: P_FI. until: n_FI as a part of all epochs. per: whose
    largest probability is held. p_cap, scale_cap: the largest P and s."""

    angular_margin: AngularMargin = 0.0
    first_p: PositiveShare = 0.2
    last_p: PositiveShare = 1.0
    until: PositiveShare = 0.9
    per: Literal["example", "batch"] = "example"
    p_cap: Annotated[float, Bounds(above=0, below=1, note="No finite scale reaches 1.")] = 1 - 1e-4
    scale_cap: Positive = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_scale(self, "first_p and last_p")

    def init(self, class_names: Sequence[str]) -> State:
        least = min(self.first_p, self.last_p, self.p_cap)
        if least * len(class_names) <= 1:
            raise UserError(
                f"the largest of {len(class_names)} probabilities is never {least:g}: "
                f"first_p, last_p and p_cap must be above 1/{len(class_names)}."
            )
        return super().init(class_names)

    @torch.no_grad()
    def scale_at(self, batch: Batch, cosines: Callable[[], Tensor]) -> Tensor:
        p = min(interpolated(batch, self.first_p, self.last_p, self.until), self.p_cap)
        z = cosines()
        ranked = z.float().sort(1, descending=True).values
        gaps = ranked[:, :1] - ranked[:, 1:]
        if self.per == "batch":
            gaps = batch.average(gaps.mean(0))[None]
        return scale_for(gaps, p, self.scale_cap).to(z.dtype)


def scale_for(gaps: Tensor, p: float, cap: float) -> Tensor:
    """The s at which the first class has probability p, one for each row of gaps of the others behind it, (B, C−1).

    The log odds against it, log Σ e^{−s·gap}, are convex and fall as s grows: Newton's method started left of the root
    rises to it and never beyond. Were all gaps as large as the largest one, the start would be the root. Where a tie
    keeps the probability below p there is none, and s is the cap.
    """
    odds = math.log((1 - p) / p)
    s = ((math.log(gaps.shape[1]) - odds) / gaps.amax(1)).clamp_max(cap)
    for _ in range(_STEPS):
        exponents = -s[:, None] * gaps
        slope = (exponents.softmax(1) * gaps).sum(1).clamp_min(_TINY)
        s = (s + (exponents.logsumexp(1) - odds) / slope).clamp_max(cap)
    return s
