"""What changes during a training besides the weights; it goes into every last.pt, so that a killed run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from classwise.methods.method import State
from classwise.training.averaging import Average
from classwise.training.history import Row

_KEYS = {"method_state": "state", "columns": "seen", "previous_weights": "before", "pgd_accuracy": "pgd"}


@dataclass(kw_only=True)
class TrainingState:
    """How far a training has come.

    method_state: the method's class-wise state. epoch, step: done so far, `step` within the epoch. columns: those of
    the unfinished epoch's training records. best: the score of the best epoch. previous_weights: the weights an epoch
    ago, where they may be needed. pgd_accuracy: on a training batch after the last epoch, to detect catastrophic
    overfitting. stopped: why the training ended early. seconds: spent on the unfinished epoch.
    """

    method_state: State
    epoch: int = 0
    step: int = 0
    columns: dict[str, Tensor] = field(default_factory=dict)
    average: Average = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    best: list[float] | None = None
    best_epoch: int = 0
    previous_weights: dict[str, Tensor] = field(default_factory=dict)
    pgd_accuracy: float | None = None
    stopped: str | None = None
    seconds: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        """All of it by the keys of a checkpoint, as tensors and plain values."""
        values = {_KEYS.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}
        return {**values, "history": json.dumps(self.history)}

    @classmethod
    def from_state_dict(cls, stored: Mapping[str, Any], device: torch.device) -> TrainingState:
        """The state that a checkpoint holds; what takes part in every step goes to the device."""
        values = {f.name: stored[_KEYS.get(f.name, f.name)] for f in fields(cls)}
        moved = {
            name: {key: value.to(device) for key, value in values[name].items()} for name in ("method_state", "average")
        }
        return cls(**{**values, **moved, "history": json.loads(values["history"])})
