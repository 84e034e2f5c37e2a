"""The checkpoints of a run folder: last.pt to resume from, the one before it, best.pt, and those of single epochs
(epochs/0014.pt) where the recipe keeps them.

Each is an ordinary checkpoint of classwise (`load_model` reads it, `classwise audit --model` too) whose `extra` holds
everything else the training needs. A checkpoint is written beside, as next.pt, and only then takes the place of the
last one, which is kept: whenever the power goes, one of them is whole.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError
from classwise.core.storage import write_text
from classwise.methods.method import State
from classwise.models.checkpoint import read_checkpoint, save_checkpoint, write_checkpoint
from classwise.training.averaging import Average, averaged
from classwise.training.history import Row, frame

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


@dataclass
class TrainingState:
    """Where a training is: all that changes from step to step besides the weights.

    epoch, step: done so far, `step` within the epoch. seen: columns of the training records of the unfinished epoch.
    before: the weights an epoch ago, where they may be needed. pgd: accuracy on a training batch after the last epoch,
    for catastrophic overfitting. stopped: why the training ended early. seconds: spent on the unfinished epoch.
    """

    state: State
    epoch: int = 0
    step: int = 0
    seen: dict[str, Tensor] = field(default_factory=dict)
    average: Average = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    best: list[float] | None = None
    best_epoch: int = 0
    before: dict[str, Tensor] = field(default_factory=dict)
    pgd: float | None = None
    stopped: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run folder, for one model."""

    folder: Path
    spec: str
    num_classes: int
    in_channels: int
    method: dict[str, Any]
    threat: dict[str, Any] = field(default_factory=dict)

    def save(self, name: str, model: nn.Module, progress: TrainingState, **more: Any) -> None:
        """Write one checkpoint."""
        about = {
            "method": json.dumps(self.method, default=str),
            "state": progress.state,
            "epoch": progress.epoch,
            "step": progress.step,
            "threat": self.threat,
            **more,
        }
        path = self.folder / name
        try:
            save_checkpoint(path, model, self.spec, self.num_classes, self.in_channels, training=about)
        except (OSError, RuntimeError) as error:  # torch's writer hides a write cut short behind an error of its own
            cause = error if isinstance(error, OSError) else error.__context__
            if not isinstance(cause, OSError):
                raise
            raise UserError(
                f"cannot write {path}: {cause.strerror or cause}. The checkpoint before it is kept: make room, then go "
                "on with the same command."
            ) from error

    def save_last(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: dict[str, Any], progress: TrainingState
    ) -> None:
        """Write last.pt, the averaged weights in front where there is an average, and history.csv; what was last.pt
        becomes previous.pt."""
        self.save(
            NEXT,
            averaged(model, progress.average) if progress.average else model,
            progress,
            weights=model.state_dict() if progress.average else {},
            average=progress.average,
            optimizer=optimizer.state_dict(),
            scaler=scaler,
            seen=progress.seen,
            history=json.dumps(progress.history),
            best=progress.best,
            best_epoch=progress.best_epoch,
            before=progress.before,
            pgd=progress.pgd,
            stopped=progress.stopped,
            seconds=progress.seconds,
        )
        last = self.folder / LAST
        if last.exists():
            last.replace(self.folder / PREVIOUS)
        (self.folder / NEXT).replace(last)
        self.write_history(progress)

    def finish(self) -> None:
        """Make up for a kill between the last two renamings: next.pt is then the newest, and whole."""
        last, fresh = self.folder / LAST, self.folder / NEXT
        if fresh.exists() and not last.exists():
            fresh.replace(last)

    def rebuild_best(self, progress: TrainingState) -> None:
        """Write best.pt again where it is missing or damaged and another checkpoint is of its epoch; else warn."""
        wanted = progress.best_epoch or (progress.epoch if progress.stopped is not None else 0)
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
            f"that epoch. {LAST} holds the model of epoch {progress.epoch}; train again with --overwrite for the best.",
            stacklevel=2,
        )

    def write_history(self, progress: TrainingState) -> None:
        """history.csv, from what the checkpoint holds, so that the two agree whenever the power goes; none before the
        first epoch is done."""
        if not progress.history:
            return
        write_text(self.folder / "history.csv", csv_text(frame(progress.history)))

    def read_last(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """What training needs to go on, and the weights: of last.pt, or of the one before where it is damaged."""
        there = [path for path in (self.folder / LAST, self.folder / PREVIOUS) if path.exists()]
        for path in there:
            try:
                content = read_checkpoint(path)
                about = content["classwise"]["extra"]["training"]
                return about, about["weights"] or content["state_dict"]
            except (UserError, KeyError) as error:
                if path == there[-1]:
                    raise UserError(
                        f"no checkpoint in {self.folder} can be read ({', '.join(p.name for p in there)}): the last "
                        f"one says: {error} Begin anew with --overwrite, or choose another --out."
                    ) from error
                warnings.warn(
                    f"{path} cannot be read ({str(error).splitlines()[0]}); going on from the checkpoint before it.",
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


def restore(
    about: dict[str, Any],
    weights: dict[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> TrainingState:
    """Put weights and optimiser back to where they were, and say where that is."""
    try:
        model.load_state_dict(weights)
        optimizer.load_state_dict(about["optimizer"])
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the checkpoint to go on from is of another model: {str(error).splitlines()[0]} Give the same model, or "
            "begin anew with --overwrite."
        ) from error
    return TrainingState(
        {name: value.to(device) for name, value in about["state"].items()},
        about["epoch"],
        about["step"],
        dict(about["seen"]),
        {name: value.to(device) for name, value in about["average"].items()},
        json.loads(about["history"]),
        about["best"],
        about["best_epoch"],
        dict(about["before"]),
        about["pgd"],
        about["stopped"],
        about["seconds"],
    )
