"""The identity attack: the images as they are, so that clean accuracy is an attack's accuracy like any other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.attacks.attack import Model, OneShot, Rows
from classwise.core.threat import Ball

PAPERS = ()  # ours, or common knowledge


@dataclass(frozen=True)
class Clean(OneShot):
    """No fields: x' = x."""

    needs_gradient = False

    def points(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        return rows["x"]
