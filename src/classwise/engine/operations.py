"""What one forward pass of a model computes, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def operations(model: nn.Module, example: Tensor) -> float:
    """Multiplications and additions of one image's forward pass, in the layers with a matrix or a kernel of weights.

    Zero for a model whose layers cannot be seen: a program, or a black box. On the meta device nothing is computed.
    """
    counts: list[int] = []

    def count(layer: nn.Module, output: Tensor) -> None:
        weight = getattr(layer, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim > 1:
            counts.append(2 * output.numel() * weight[0].numel())

    watch_layers(model, example, count)
    return sum(counts) / len(example)


def watch_layers(model: nn.Module, example: Tensor, note: Callable[[nn.Module, Tensor], None]) -> None:
    """One forward pass without gradients that calls `note(layer, output)` after every module that returns a tensor."""

    def hook(layer: nn.Module, args: object, output: object) -> None:
        if isinstance(output, Tensor):
            note(layer, output)

    layers = [layer for layer in model.modules() if not isinstance(layer, torch.jit.ScriptModule)]  # take no hooks
    hooks = [layer.register_forward_hook(hook) for layer in layers]
    try:
        with torch.no_grad():
            model(example)
    finally:
        for handle in hooks:
            handle.remove()
