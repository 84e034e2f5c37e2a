"""The checkpoints of a run folder: last.pt to resume from, the one before it, best.pt, and those of single epochs
(epochs/0014.pt) where the recipe keeps them.

Each is an ordinary checkpoint of classwise (`load_model` reads it, `classwise audit --model` too) whose `extra` holds
everything else the training needs. A checkpoint is first written as next.pt and only then replaces
last.pt, which is kept as previous.pt: one of them is complete whenever the process is killed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder
from classwise.models.checkpoint import read_checkpoint, save_checkpoint, write_checkpoint
from classwise.training.averaging import averaged
from classwise.training.history import frame
from classwise.training.state import TrainingState


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one run folder, for one model."""

    folder: TrainingFolder
    spec: str
    num_classes: int
    in_channels: int
    method: dict[str, Any]
    threat: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path, model: nn.Module, state: TrainingState, more: Mapping[str, Any] | None = None) -> None:
        """Write one checkpoint; `more` is what only the last one needs."""
        training = {
            "method": json.dumps(self.method, default=str),
            "state": state.method_state,
            "epoch": state.epoch,
            "step": state.step,
            "threat": self.threat,
            **(more or {}),
        }
        try:
            save_checkpoint(path, model, self.spec, self.num_classes, self.in_channels, training=training)
        except (OSError, RuntimeError) as error:  # torch's writer hides a write cut short behind an error of its own
            cause = error if isinstance(error, OSError) else error.__context__
            if not isinstance(cause, OSError):
                raise
            raise UserError(
                f"cannot write {path}: {cause.strerror or cause}. The checkpoint before it is kept: make room, then "
                "resume with the same command."
            ) from error

    def save_last(self, model: nn.Module, state: TrainingState, more: Mapping[str, Any]) -> None:
        """Write last.pt, the averaged weights in front where there is an average, and history.csv; what was last.pt
        becomes previous.pt."""
        shown, weights = (averaged(model, state.average), model.state_dict()) if state.average else (model, {})
        self.save(self.folder.next, shown, state, {"weights": weights, **state.state_dict(), **more})
        if self.folder.last.exists():
            self.folder.last.replace(self.folder.previous)
        self.folder.next.replace(self.folder.last)
        self.write_history(state)

    def finish(self) -> None:
        """Finish a save that was killed between its two renamings: next.pt is then the newest, and complete."""
        if self.folder.next.exists() and not self.folder.last.exists():
            self.folder.next.replace(self.folder.last)

    def rebuild_best(self, state: TrainingState) -> None:
        """Write best.pt again where it is missing or damaged and another checkpoint is of its epoch; else warn."""
        wanted = state.best_epoch or (state.epoch if state.stopped is not None else 0)
        folder = self.folder
        if not wanted or _read(folder.best) is not None:
            return
        for path in (folder.epoch(wanted), folder.last, folder.previous):
            content = _read(path)
            stored = {} if content is None else content["classwise"]["extra"]["training"]
            if content is not None and stored["epoch"] == wanted and stored["step"] == 0:
                kept = {name: stored[name] for name in ("method", "state", "epoch", "step", "threat") if name in stored}
                write_checkpoint(folder.best, {**content["classwise"], "extra": {"training": kept}}, content)
                return
        warnings.warn(
            f"{folder.best}, the model of epoch {wanted}, is missing or damaged, and no other checkpoint is of that "
            f"epoch. {folder.last.name} holds the model of epoch {state.epoch}; train again with --overwrite to "
            "get the best.",
            stacklevel=2,
        )

    def write_history(self, state: TrainingState) -> None:
        """history.csv, from what the checkpoint holds, so that the two agree after any kill; none before the first
        epoch is done."""
        if state.history:
            self.folder.write_history(frame(state.history))

    def read_last(self) -> dict[str, Any] | None:
        """What training needs to resume, its weights too: of last.pt, or of the one before where it is damaged."""
        there = [path for path in (self.folder.last, self.folder.previous) if path.exists()]
        for path in there:
            try:
                content = read_checkpoint(path)
                stored = content["classwise"]["extra"]["training"]
                return {**stored, "weights": stored["weights"] or content["state_dict"]}
            except (UserError, KeyError) as error:
                if path == there[-1]:
                    raise UserError(
                        f"no checkpoint in {self.folder.path} can be read ({', '.join(p.name for p in there)}): the "
                        f"last one says: {error} Train from scratch with --overwrite, or choose another --out."
                    ) from error
                warnings.warn(
                    f"{path} cannot be read ({str(error).splitlines()[0]}); resuming from the checkpoint before it.",
                    stacklevel=2,
                )
        return None


def _read(path: Path) -> dict[str, Any] | None:
    """A checkpoint of a training; None where it is missing, damaged, or not of a training."""
    try:
        content = read_checkpoint(path)
    except UserError:
        return None
    return content if "training" in content["classwise"].get("extra", {}) else None
