"""classwise's own checkpoints: the weights, and all it takes to build the model again.

    {"classwise": {"format": 1, "model": spec, "num_classes": …, "in_channels": …, "normalize": [mean, std] or None,
                   "extra": {…}},
     "state_dict": …}

Only tensors and plain values, so `torch.load(path, weights_only=True)` reads it anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.errors import UserError
from classwise.models.normalize import normalization_of
from classwise.models.programs import kind_of_program
from classwise.models.reading import read_file
from classwise.storage import whole_file

FORMAT = 1


def save_checkpoint(
    path: str | Path, model: nn.Module, spec: str, num_classes: int, in_channels: int, **extra: Any
) -> None:
    """Store `model`, whole or not at all: written beside and renamed. `extra` may hold tensors and plain values."""
    _check_plain(extra, "extra")
    normalize = normalization_of(model)
    header = {
        "format": FORMAT,
        "model": _root(str(spec)),
        "num_classes": num_classes,
        "in_channels": in_channels,
        "normalize": None if normalize is None else [list(part) for part in normalize],
        "extra": extra,
    }
    with whole_file(Path(path)) as handle:
        torch.save({"classwise": header, "state_dict": model.state_dict()}, handle)


def _root(spec: str) -> str:
    """The spec that a model goes back to: one that was loaded from a checkpoint is what that checkpoint holds."""
    path = Path(spec)
    if not path.is_file() or kind_of_program(path) is not None:
        return spec
    return str(read_checkpoint(path)["classwise"]["model"])


def _check_plain(value: Any, where: str) -> None:
    """Refuse what `weights_only=True` could not read back, before it is written."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            _check_plain(item, f"{where}[{place}]")
    elif value is not None and type(value) not in (bool, int, float, str) and not isinstance(value, Tensor):
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds only tensors and plain values.")


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The whole content of a checkpoint of classwise, header under "classwise"; an error for any other file."""
    content = read_file(path)
    header = content.get("classwise") if isinstance(content, dict) else None
    if not isinstance(header, dict) or "format" not in header:
        raise UserError(
            f"{path} holds weights but not which model they belong to. "
            f"Name the model and give this file as its weights: --model resnet-18 --weights {path}"
        )
    if header["format"] > FORMAT:
        raise UserError(f"{path} was written by a newer classwise (format {header['format']}): upgrade classwise.")
    return dict(content)
