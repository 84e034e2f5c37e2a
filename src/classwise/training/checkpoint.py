"""The checkpoints of a run folder: last.pt to resume from, the one before it, best.pt, and those of single epochs
(epochs/0014.pt) where the recipe keeps them.

Each is an ordinary checkpoint of classwise (`load_model` reads it, `classwise audit --model` too) whose `extra` holds
everything else the training needs. A checkpoint is written beside, as next.pt, and only then takes the place of the
last one, which is kept: whenever the power goes, one of them is whole.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError
from classwise.core.storage import write_text
from classwise.models.checkpoint import read_checkpoint, save_checkpoint, write_checkpoint
from classwise.training.averaging import averaged
from classwise.training.history import frame
from classwise.training.state import TrainingState

LAST, NEXT, PREVIOUS, BEST = "last.pt", "next.pt", "previous.pt", "best.pt"
EPOCHS = "epochs"  # the folder of kept epochs, within the run folder


def of_epoch(epoch: int) -> str:
    """Where the model of an epoch, counted from 1, is within a run folder that keeps it."""
    return f"{EPOCHS}/{epoch:04}.pt"


def kept_epochs(folder: Path) -> list[int]:
    """The epochs whose models a run folder keeps."""
    return sorted(int(path.stem) for path in folder.glob(f"{EPOCHS}/*.pt") if path.stem.isdecimal())


def checkpoint_of(folder: Path, epoch: int) -> Path:
    """The checkpoint of an epoch that a run folder keeps; an error that names the kept ones where it is not there."""
    path = folder / of_epoch(epoch)
    if not path.is_file():
        kept = ", ".join(map(str, kept_epochs(folder))) or "none"
        raise UserError(
            f"{folder} does not keep epoch {epoch}; it keeps {kept}. Train with train.keep = {epoch} (every "
            f"{epoch} epochs) or all."
        )
    return path


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one run folder, for one model."""

    folder: Path
    spec: str
    num_classes: int
    in_channels: int
    method: dict[str, Any]
    threat: dict[str, Any] = field(default_factory=dict)

    def save(self, name: str, model: nn.Module, state: TrainingState, more: Mapping[str, Any] | None = None) -> None:
        """Write one checkpoint; `more` is what only the last one needs."""
        training = {
            "method": json.dumps(self.method, default=str),
            "state": state.method_state,
            "epoch": state.epoch,
            "step": state.step,
            "threat": self.threat,
            **(more or {}),
        }
        path = self.folder / name
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
        self.save(NEXT, shown, state, {"weights": weights, **state.state_dict(), **more})
        last = self.folder / LAST
        if last.exists():
            last.replace(self.folder / PREVIOUS)
        (self.folder / NEXT).replace(last)
        self.write_history(state)

    def finish(self) -> None:
        """Make up for a kill between the last two renamings: next.pt is then the newest, and whole."""
        last, fresh = self.folder / LAST, self.folder / NEXT
        if fresh.exists() and not last.exists():
            fresh.replace(last)

    def rebuild_best(self, state: TrainingState) -> None:
        """Write best.pt again where it is missing or damaged and another checkpoint is of its epoch; else warn."""
        wanted = state.best_epoch or (state.epoch if state.stopped is not None else 0)
        if not wanted or _read(self.folder / BEST) is not None:
            return
        for path in (self.folder / name for name in (of_epoch(wanted), LAST, PREVIOUS)):
            content = _read(path)
            about = {} if content is None else content["classwise"]["extra"]["training"]
            if content is not None and (about["epoch"], about["step"]) == (wanted, 0):
                kept = {name: about[name] for name in ("method", "state", "epoch", "step", "threat") if name in about}
                write_checkpoint(self.folder / BEST, {**content["classwise"], "extra": {"training": kept}}, content)
                return
        warnings.warn(
            f"{self.folder / BEST}, the model of epoch {wanted}, is missing or damaged, and no other checkpoint is of "
            f"that epoch. {LAST} holds the model of epoch {state.epoch}; train again with --overwrite for the best.",
            stacklevel=2,
        )

    def write_history(self, state: TrainingState) -> None:
        """history.csv, from what the checkpoint holds, so that the two agree whenever the power goes; none before the
        first epoch is done."""
        if not state.history:
            return
        write_text(self.folder / "history.csv", csv_text(frame(state.history)))

    def read_last(self) -> dict[str, Any] | None:
        """What training needs to resume, its weights too: of last.pt, or of the one before where it is damaged."""
        there = [path for path in (self.folder / LAST, self.folder / PREVIOUS) if path.exists()]
        for path in there:
            try:
                content = read_checkpoint(path)
                stored = content["classwise"]["extra"]["training"]
                return {**stored, "weights": stored["weights"] or content["state_dict"]}
            except (UserError, KeyError) as error:
                if path == there[-1]:
                    raise UserError(
                        f"no checkpoint in {self.folder} can be read ({', '.join(p.name for p in there)}): the last "
                        f"one says: {error} Train from scratch with --overwrite, or choose another --out."
                    ) from error
                warnings.warn(
                    f"{path} cannot be read ({str(error).splitlines()[0]}); resuming from the checkpoint before it.",
                    stacklevel=2,
                )
        return None


def _read(path: Path) -> dict[str, Any] | None:
    """A checkpoint of a training; None where it is not there, damaged, or of something else."""
    try:
        content = read_checkpoint(path)
    except UserError:
        return None
    return content if "training" in content["classwise"].get("extra", {}) else None
