"""The identity attack: the images as they are, so that clean accuracy is an attack's accuracy like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from classwise.attacks.attack import Model, Rows
from classwise.core.threat import Ball


@dataclass(frozen=True)
class Clean:
    """No fields: x' = x."""

    needs_gradient: ClassVar[bool] = False

    @property
    def steps(self) -> int:
        return 0

    @property
    def restarts(self) -> int:
        return 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": rows["x"]}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        raise AssertionError("clean has no step to take")
