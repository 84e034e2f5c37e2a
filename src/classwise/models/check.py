"""Is this a classifier of these images? Asked of one batch, before hours are spent on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from classwise.errors import UserError


def check_model(model: nn.Module, x: Tensor, num_classes: int | None = None) -> int:
    """The number of classes of `model`, from its logits on the batch `x`; an error in a sentence if they are none."""
    shape = "×".join(map(str, x.shape))
    try:
        with torch.no_grad():
            logits = model(x)
    except UserError:
        raise
    except Exception as error:
        raise _forward_error(model, x, error) from error
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
    if num_classes is not None and width != num_classes:
        raise UserError(
            f"the model tells {width} classes apart but the data has {num_classes}. Build the model with "
            f"num_classes={num_classes}, or choose the data it was trained on."
        )
    return width


def _forward_error(model: nn.Module, x: Tensor, error: Exception) -> UserError:
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels != x.shape[1]:
        return UserError(
            f"the model expects images of {first.in_channels} channels but the data has {x.shape[1]}. "
            f"Build it with in_channels={x.shape[1]}, or choose other data."
        )
    shape = "×".join(map(str, x.shape))
    return UserError(f"the model failed on a batch of {shape} images: {type(error).__name__}: {error}")
