"""Checks on one batch that a model is a classifier of the images, before hours are spent on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from classwise.core.errors import UserError


def check_model(model: nn.Module, x: Tensor, num_classes: int | None = None) -> int:
    """The number of classes of `model`, from its logits on the batch `x`; an error where they are not logits."""
    _check_weights(model, x)
    shape = "×".join(map(str, x.shape))
    given = x.clone()
    try:
        with torch.no_grad():
            logits = model(given)
    except UserError:
        raise
    except Exception as error:
        raise _forward_error(model, x, error) from error
    if not torch.equal(given, x):
        raise UserError(
            "the model changes its input in place (such as x.sub_(mean) or x /= std): an attack would lose its current "
            "point. Compute a new tensor instead: x = (x - mean) / std."
        )
    if not isinstance(logits, Tensor):
        raise UserError(
            f"the model returned a {type(logits).__name__}, expected a tensor of logits. "
            "Wrap it in a module whose forward returns only the logits."
        )
    if logits.ndim != 2 or len(logits) != len(x):
        raise UserError(
            f"for a batch of {shape} the model returned shape {tuple(logits.shape)}, expected ({len(x)}, classes)."
        )
    if not torch.isfinite(logits).all():
        raise UserError(
            "the model returned NaN or infinite logits on clean images. "
            "Check that its weights belong to it, and its normalisation."
        )
    width = logits.shape[1]
    if width < 2:
        raise UserError(
            "the model has one output, and a classifier has one for each class. For two classes with a single "
            "logit d return both logits: torch.cat([torch.zeros_like(d), d], 1)."
        )
    if num_classes is not None and width != num_classes:
        raise UserError(
            f"the model has {width} classes but the data has {num_classes}. Build the model with "
            f"num_classes={num_classes}, or choose the data it was trained on."
        )
    return width


def move_to(model: nn.Module, device: torch.device | str | None) -> nn.Module:
    """The model on `device`, or where it is; an error where it has no weights to move."""
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise UserError(
            "the model is on the meta device: it has shapes but no weights. Make it on the CPU, or load its weights."
        )
    return model if device is None else model.to(check_device(device))


def check_device(device: str | torch.device) -> torch.device:
    """The device, once a tensor was put there."""
    try:
        return torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].partition(" device type")[0]
        raise UserError(f"cannot use the device {str(device)!r}: {reason}. Try cpu, cuda, cuda:1 or mps.") from error


def _check_weights(model: nn.Module, x: Tensor) -> None:
    """Raise for weights on the meta device, and for those that a CPU cannot compute with."""
    move_to(model, None)
    halves = {tensor.dtype for tensor in (*model.parameters(), *model.buffers())} & {torch.float16, torch.bfloat16}
    if halves and x.device.type == "cpu":
        raise UserError(
            f"the model's weights are {_short(halves)}, which is slow on a CPU and on some unsupported. Convert it: "
            "model.float()."
        )


def _short(kinds: set[torch.dtype]) -> str:
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))


def _forward_error(model: nn.Module, x: Tensor, error: Exception) -> UserError:
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels != x.shape[1]:
        return UserError(
            f"the model expects images of {first.in_channels} channels but the data has {x.shape[1]}. "
            f"Build it with in_channels={x.shape[1]}, or choose other data."
        )
    kinds = {tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()} - {x.dtype}
    if kinds:
        return UserError(
            f"the model's weights are {_short(kinds)}, and images are float32: it failed with {error}. Convert it: "
            "model.float()."
        )
    shape = "×".join(map(str, x.shape))
    return UserError(f"the model failed on a batch of {shape} images: {type(error).__name__}: {error}")
