"""Hypersphere embedding with a scale that grows with the epochs by linear interpolation (Tian et al. 2020, app. G).

    s_n = s_0 + (n / n_FI) (s_FI − s_0),      s_0 = 1,  s_FI = 75,  n_FI = all epochs,  n = whole epochs done

On PGD-AT and without angular margin, as the paper has it; attack and loss use the same s_n. So the last epoch trains
with almost s_FI (74.26 of a hundred epochs). Where n_FI is less than all epochs, s stays at s_FI from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.spec import Positive, PositiveShare
from classwise.methods.he import AngularMargin, He
from classwise.methods.method import Batch

PAPERS = ("pang2020", "tian2020")


@dataclass(frozen=True, kw_only=True)
class HeLis(He):
    """Fields of he but for scale, and: first_scale: s_0. last_scale: s_FI. until: n_FI as a part of all epochs."""

    angular_margin: AngularMargin = 0.0
    first_scale: Positive = 1.0
    last_scale: Positive = 75.0
    until: PositiveShare = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_scale(self, "first_scale and last_scale")

    def scale_at(self, batch: Batch, cosines: Callable[[], Tensor]) -> float:
        return interpolated(batch, self.first_scale, self.last_scale, self.until)


def interpolated(batch: Batch, first: float, last: float, until: float) -> float:
    """From `first` in epoch 0 to `last` after so large a part of all epochs; the same throughout an epoch."""
    return first + min(math.floor(batch.epoch) / (until * batch.epochs), 1.0) * (last - first)


def refuse_scale(method: He, instead: str) -> None:
    """Refuse a fixed scale beside a schedule."""
    if method.scale is not None:
        raise UserError(f"scale={method.scale:g} is for he; here it follows from {instead}: leave scale out.")
