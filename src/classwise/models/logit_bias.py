"""A constant added to the logits, where no last layer can take it: z ↦ z + b, one number for each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Biased(nn.Module):
    """A model with a constant added to its logits; `features` are those of the model, `body`.

    Checkpoints keep the constant in their header, so that the weights in them are those of `body` alone.
    """

    bias: Tensor
    __jit_unused_properties__ = ("black_box", "identity")

    def __init__(self, body: nn.Module, bias: Sequence[float]) -> None:
        super().__init__()
        self.body = body
        like = next(iter(body.parameters()), torch.zeros(()))
        self.register_buffer("bias", torch.tensor(list(bias), dtype=torch.float32, device=like.device))

    @property
    def black_box(self) -> bool:
        return bool(getattr(self.body, "black_box", False))

    @property
    def identity(self) -> str:
        """What a black box says of itself; empty where the weights say it."""
        return str(getattr(self.body, "identity", ""))

    def features(self, x: Tensor) -> Any:
        return self.body.features(x)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(x)
        return logits + self.bias


def biased(model: nn.Module, bias: Sequence[float] | None) -> nn.Module:
    """`model` with the constants added to its logits, to those it adds already where it does; as it is for None."""
    if bias is None:
        return model
    if isinstance(model, Biased):
        return Biased(model.body, [own + more for own, more in zip(model.bias.tolist(), bias, strict=True)])
    return Biased(model, bias)


def bias_of(model: nn.Module) -> tuple[nn.Module, list[float] | None]:
    """The model without the constants that classwise adds to its logits, and those constants, if it adds any."""
    return (model.body, model.bias.tolist()) if isinstance(model, Biased) else (model, None)
