"""The checkpoint of a training as the zoo keeps it: what it takes to use the model, not to train it further."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from classwise.auditing.fingerprints import fingerprint_model
from classwise.core.errors import UserError
from classwise.core.run_config import same
from classwise.models import load_model
from classwise.models.checkpoint import read_checkpoint, write_checkpoint
from classwise.models.loading import names_code

_KEPT = ("method", "epoch", "threat")  # of what a training says besides the weights


def store(source: Path, target: Path, half: bool) -> str:
    """Write a checkpoint without the state of its training, and return the fingerprint of its weights.

    half: its matrices and filters in half precision. What has one value for each channel (biases, statistics of
    batch-norm) is little and stays as it is: running variances leave the range of half precision.
    """
    content = read_checkpoint(source)
    header: dict[str, Any] = content["classwise"]
    if names_code(header["model"]):
        raise UserError(
            f"{source} holds a model that {header['model']!r} makes, which no other machine has: the zoo takes "
            "built-in networks and those of installed libraries."
        )
    training = header["extra"].get("training", {})
    kept = {"training": {name: training[name] for name in _KEPT if name in training}}
    state = {name: _rounded(value) if half else value for name, value in content["state_dict"].items()}
    write_checkpoint(target, {**header, "extra": kept}, {"state_dict": state})
    return fingerprint(target)


def fingerprint(checkpoint: Path) -> str:
    """The hash of a model's weights by which audits remember it."""
    return fingerprint_model(load_model(checkpoint))


def is_half(checkpoint: Path) -> bool:
    """Whether weights are stored in half precision."""
    return any(value.element_size() == 2 for value in _floats(read_checkpoint(checkpoint)["state_dict"]))


def parameters(checkpoint: Path) -> int:
    """How many numbers are trained."""
    return sum(value.numel() for value in load_model(checkpoint).parameters())


def is_of(config: Mapping[str, Any], *fingerprints: str) -> bool:
    """Whether an audit, by its config.toml, is of weights with one of these fingerprints."""
    return any(same(config.get("model", {}).get("fingerprint"), own) for own in fingerprints)


def _rounded(value: Tensor) -> Tensor:
    return value.half() if value.is_floating_point() and value.ndim > 1 else value


def _floats(state: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for value in state.values() if value.is_floating_point()]
