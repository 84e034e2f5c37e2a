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

from classwise.errors import UserError
from classwise.methods.he import He
from classwise.methods.method import Batch


@dataclass(frozen=True)
class HeLis(He):
    """Fields of he but for scale, and: first_scale: s_0. last_scale: s_FI. until: n_FI as a part of all epochs."""

    angular_margin: float = 0.0
    first_scale: float = 1.0
    last_scale: float = 75.0
    until: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schedule(self, "first_scale and last_scale", self.until)
        for name in ("first_scale", "last_scale"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, got {getattr(self, name):g}.")

    def scale_at(self, batch: Batch, cosines: Callable[[], Tensor]) -> float:
        return interpolated(batch, self.first_scale, self.last_scale, self.until)


def interpolated(batch: Batch, first: float, last: float, until: float) -> float:
    """From `first` in epoch 0 to `last` after so large a part of all epochs; the same throughout an epoch."""
    return first + min(math.floor(batch.epoch) / (until * batch.epochs), 1.0) * (last - first)


def check_schedule(method: He, instead: str, until: float) -> None:
    """Refuse a fixed scale beside a schedule, and what is no part of all epochs."""
    if method.scale is not None:
        raise UserError(f"scale={method.scale:g} is for he; here it follows from {instead}: leave scale out.")
    if not 0 < until <= 1:
        raise UserError(f"until is a part of all epochs, above 0 and at most 1; got {until:g}.")
