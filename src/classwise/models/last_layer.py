"""The last layer of any network, found by what it computes, and changed: z = W f + b becomes W' f + b + b'.

The layer is the linear layer (or 1×1 convolution) whose output *is* the model's output on a batch, and whose bias, when
it is moved, moves the logits by as much. Where there is none, b' is added to the logits behind the model
(`classwise.models.logit_bias`).
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.models.logit_bias import biased

_CLOSE = 1e-4  # of the largest logit: rounding of float32, not another function


@dataclass(frozen=True)
class LastLayer:
    """Where the last layer is, and what of it may be changed.

    name: its name among the model's modules. takes_bias: whether it has a bias that can take b'. takes_weight: whether
    its weight is a plain matrix of its own.
    """

    name: str
    takes_bias: bool
    takes_weight: bool


@dataclass(frozen=True)
class Change:
    """What is changed of a model's logits: b' is added, and W replaced by `weight`, (classes, features), if given."""

    bias: Array
    weight: Array | None = None

    @classmethod
    def none(cls, classes: int) -> Change:
        return cls(np.zeros(classes))


def find_last_layer(model: nn.Module, x: Tensor) -> LastLayer | None:
    """The layer whose output on the batch `x` is the model's; None where there is none, as in a program."""
    candidates = {name: layer for name, layer in model.named_modules() if _is_linear(layer)}
    outputs: dict[str, list[Tensor]] = {name: [] for name in candidates}
    handles = [
        layer.register_forward_hook(lambda _, __, output, name=name: outputs[name].append(output))
        for name, layer in candidates.items()
    ]
    try:
        with torch.no_grad():
            logits = model(x)
    finally:
        for handle in handles:
            handle.remove()
    found = [name for name, seen in outputs.items() if len(seen) == 1 and _same(seen[0].flatten(1), logits)]
    if not found:
        return None
    name, layer = found[-1], candidates[found[-1]]
    held = Counter(id(tensor) for module in model.modules() for tensor in module._parameters.values())
    own = {key for key, tensor in layer._parameters.items() if tensor is not None and held[id(tensor)] == 1}
    takes_weight = "weight" in own and type(layer) in (nn.Linear, nn.Conv2d)
    return LastLayer(name, "bias" in own and _shifts(model, name, x, logits), takes_weight)


def weight_of(model: nn.Module, layer: LastLayer) -> Array:
    """W as (classes, features), in double precision."""
    weight = model.get_parameter(f"{layer.name}.weight")
    return np.asarray(weight.detach().flatten(1).double().cpu().numpy())


def changed(model: nn.Module, layer: LastLayer | None, change: Change) -> nn.Module:
    """A copy of `model` with the change in its last layer; where the layer cannot take the bias, it is added behind the
    model itself."""
    if layer is None or not (layer.takes_bias or change.weight is not None):
        if change.weight is not None:
            raise UserError("the model has no last layer whose weights can be changed; change only the bias.")
        return biased(model, change.bias.tolist()) if change.bias.any() else model
    made = copy.deepcopy(model)
    with torch.no_grad():
        if change.weight is not None:
            weight = made.get_parameter(f"{layer.name}.weight")
            weight.copy_(torch.from_numpy(change.weight).reshape(weight.shape))
        if layer.takes_bias:
            bias = made.get_parameter(f"{layer.name}.bias")
            bias.copy_(bias.double() + torch.from_numpy(change.bias).to(bias.device))
    return made if layer.takes_bias or not change.bias.any() else biased(made, change.bias.tolist())


def _is_linear(layer: nn.Module) -> bool:
    pointwise = isinstance(layer, nn.Conv2d) and {*layer.kernel_size, *layer.stride, layer.groups} == {1}
    return (isinstance(layer, nn.Linear) or pointwise) and not isinstance(layer, torch.jit.ScriptModule)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= _CLOSE * other.abs().max().clamp_min(1e-6))


def _shifts(model: nn.Module, name: str, x: Tensor, logits: Tensor) -> bool:
    """Whether the logits move as the layer's bias does."""
    try:
        moved = copy.deepcopy(model)
    except Exception:  # deepcopy runs the model's own code, which may raise anything; then nothing can be folded
        return False
    step = torch.linspace(-1, 1, logits.shape[1], device=logits.device) * logits.abs().max().clamp_min(1.0)
    with torch.no_grad():
        moved.get_parameter(f"{name}.bias").add_(step)
        return _same(moved(x), logits + step)
