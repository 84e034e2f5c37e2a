"""Models small enough to follow an attack on paper, and an attack's iterates one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, initial_rows
from classwise.core.threat import Norm, Radius, ball_of

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]


@pytest.fixture
def linear() -> Linear:
    """A model z = Wx + b of flat images."""

    def make(weight: Sequence[Sequence[float]], bias: Sequence[float] | float = 0.0) -> Model:
        def model(x: Tensor) -> Tensor:
            w = torch.tensor(weight, dtype=x.dtype)
            return x.flatten(1) @ w.T + torch.as_tensor(bias, dtype=x.dtype)

        return model

    return make


@pytest.fixture
def iterates() -> Iterates:
    """The rows after `begin` and after each `advance`."""

    def run(attack: Attack, model: Model, x: Tensor, y: Tensor, eps: Radius, norm: Norm = "linf") -> list[Rows]:
        rows = attack.begin(model, initial_rows(x, y, eps, torch.arange(len(x))), ball_of(norm))
        seen = [rows]
        for _ in range(attack.steps):
            rows = attack.advance(model, rows, ball_of(norm))
            seen.append(rows)
        return seen

    return run
