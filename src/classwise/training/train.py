"""`train` takes a recipe, fills a run folder and returns a `Trained` that reads it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.text import Text
from torch import nn

from classwise import methods
from classwise.auditing.audit import audit
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.auditing.inputs import default_device
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.run_config import check_same, plain
from classwise.core.run_folder import TrainingFolder
from classwise.core.run_lock import writing
from classwise.core.trust import trusting
from classwise.models import load_model, read_checkpoint
from classwise.models.check import check_device
from classwise.models.loading import names_code
from classwise.results.audit_result import Audit
from classwise.training import recipe
from classwise.training.audit_command import audit_command, audit_data
from classwise.training.loop import Training, fit
from classwise.training.prepare import examples, idle, network_of, prepare, split_off
from classwise.training.processes import local_device, process_group, restarted
from classwise.training.progress_display import ProgressDisplay, show_trained
from classwise.training.recipe import Recipe
from classwise.training.state import TrainingState
from classwise.training.teachers import teachers_of
from classwise.training.tracking import open_trackers


@checked
def train(
    source: str | Path | dict[str, Any] | Recipe,
    *,
    out: str | Path,
    changes: Sequence[str] = (),
    root: str | Path | None = None,
    download: bool = False,
    data: Any = None,
    model: nn.Module | None = None,
    teacher: nn.Module | None = None,
    teacher_clean: nn.Module | None = None,
    device: str | torch.device | None = None,
    trackers: Sequence[str] = (),
    overwrite: bool = False,
    trust: bool = False,
    progress: bool | None = None,
) -> Trained:
    """Train by a recipe, in a run folder. The same call resumes a training that was killed.

    source: a recipe's file, the name of a shipped one (``cifar10/trades``), nested settings, or a `Recipe`.
    changes: settings to change, ``["train.epochs=30", "method.beta={dog = 0.5}"]``.
    data: images to train on instead of the recipe's data set: a pair (x, y), a Dataset, `Images`.
    model: a module to train instead of the recipe's model; it is changed in place.
    teacher, teacher_clean: trained modules to distil instead of the recipe's; they are not changed.
    trackers: "tensorboard", "mlflow", "wandb", besides history.csv.
    trust: load a model file that runs code without being named as code (see `load_model`).
    """
    chosen = recipe.load(source, changes)
    folder = Path(out)
    where = local_device(default_device() if device is None else check_device(device))
    if chosen.train.amp is not None and where.type == "cpu":
        raise UserError(f"train.amp = {chosen.train.amp} is for GPUs: on a CPU it is slow, on some unsupported.")
    with process_group(where) as processes, writing(out if processes.first else None):
        with processes.first_alone():  # it may download
            everything = examples(chosen, root, download, data)
        kept, held_out = split_off(chosen, everything)
        with trusting(trust):
            network = network_of(chosen, model, kept, where)
            teachers = teachers_of(chosen, kept, where, {"teacher": teacher, "teacher_clean": teacher_clean})
        # Everything that can be wrong with a recipe is an error before the folder is touched.
        training, start = prepare(
            chosen, network, kept, held_out, teachers=teachers, folder=folder, processes=processes, root=root,
            download=download,
        )  # fmt: skip
        if processes.first:
            for sentence in idle(chosen):
                warnings.warn(sentence, stacklevel=2)
            marks = {"data": fingerprint_data(everything)}
            if model is None:  # a given module may start with new random weights each time; the checkpoint's count
                marks["weights"] = fingerprint_model(network)
            marks |= {name: fingerprint_model(network) for name, network in teachers.items()}
            given = {"data": data, "model": model, "teacher": teacher, "teacher_clean": teacher_clean}
            config = {**chosen.settings(), "fingerprint": marks, "run": _run_settings(root, given)}
            stored = TrainingFolder(folder).open_or_create(config, overwrite and not restarted())
            _check_same(folder, stored, config)
            training.checkpoints.finish()
        processes.wait()
        start = _resume(training, start)
        if processes.first:
            training.checkpoints.rebuild_best(start)
        known = plain(chosen.settings())
        resumed = start.epoch if start.history else None
        tracker = open_trackers(trackers if processes.first else (), folder, folder.name, known, resumed)
        display = ProgressDisplay(
            epochs=chosen.train.epochs,
            attacks=training.attacks,
            tracker=tracker,
            show=progress,
            quiet=not processes.first,
        )
        with display.running():
            fit(training, start, display)
        processes.wait()
        if processes.first and (remarks := Trained(folder).remarks()):
            TrainingFolder(folder).write_remarks(remarks)
    return Trained(folder, root, quiet=not processes.first, trust=trust or names_code(chosen.model.spec))


def _run_settings(root: str | Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """What a run folder stores besides the recipe, so that it can be resumed and audited without repeating it."""
    names = [name for name, value in given.items() if value is not None]
    return {"root": None if root is None else str(Path(root).expanduser().resolve()), "given": names}


def _check_same(folder: Path, stored: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise, with what differs, where a folder was made by another recipe, or on other images or weights."""
    check_same(folder, recipe.with_defaults(recipe.settings_of(stored)), recipe.settings_of(config))
    old, new = stored.get("fingerprint", {}), config["fingerprint"]
    name, spec, weights = config["data"]["name"], config["model"]["spec"], config["model"]["weights"]
    others = {
        "data": "the images given as data" if "data" in config["run"]["given"] else f"the images of {name}",
        "weights": f"the weights in {weights}" if weights else f"the first weights of {spec}",
        "teacher": "the weights of the teacher",
        "teacher_clean": "the weights of teacher_clean",
    }
    for key, what in others.items():
        if key in old and key in new and old[key][:16] != new[key][:16]:
            raise UserError(
                f"{folder} was made with other settings: {what} are not those it was made with; the file or folder "
                "has changed, or --root names another one. Choose another --out, or --overwrite to train from scratch."
            )


def _resume(training: Training, start: TrainingState) -> TrainingState:
    """The state in the run folder's checkpoint, its weights loaded; without a checkpoint, the start."""
    train_step, checkpoints = training.train_step, training.checkpoints
    if (stored := checkpoints.read_last()) is None:
        return start
    train_step.load_state_dict(stored)
    state = TrainingState.from_state_dict(stored, train_step.device)
    if train_step.processes.first:
        checkpoints.write_history(state)
    return state


@dataclass(frozen=True)
class Trained:
    """A run folder of a training, finished or not."""

    folder: Path
    root: str | Path | None = None
    quiet: bool = False  # in all processes but the first
    trust: bool = False  # whether the Python file that makes the model may be run

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch: accuracies of every class, the method's class-wise state, worst, CV, MCD, lr, time."""
        return TrainingFolder(self.folder).history()

    @property
    def best(self) -> Path:
        """The checkpoint that the recipe's rule chose on validation data."""
        return TrainingFolder(self.folder).best

    @property
    def best_epoch(self) -> int:
        """The epoch of that checkpoint."""
        if not self.best.is_file():
            raise UserError(
                f"{self.best} is missing. classwise train --resume {self.folder} writes it again where another "
                "checkpoint is of the same epoch; last.pt is the model of the last epoch."
            )
        return int(read_checkpoint(self.best)["classwise"]["extra"]["training"]["epoch"])

    @property
    def last(self) -> Path:
        """The checkpoint after the last epoch."""
        return TrainingFolder(self.folder).last

    @property
    def config(self) -> dict[str, Any]:
        """The whole recipe, defaults included."""
        return TrainingFolder(self.folder).config()

    def remarks(self) -> tuple[str, ...]:
        """Why the training ended early, if it did, and the method's remarks on its state, such as WAT's bound."""
        settings = self.config
        stored = read_checkpoint(self.last)["classwise"]["extra"]["training"]
        early = (f"Stopped early: {stored['stopped']}.",) if stored["stopped"] else ()
        if not methods.knows(settings["method"]["name"]):  # a class that was only given in Python
            return early
        made = recipe.build(settings)
        return (*early, *idle(made), *made.method.remarks(stored["state"]))

    def show(self) -> None:
        """Print the classes of the best epoch on validation data, and the command that audits the model."""
        if self.quiet:
            return
        console, config = Console(), self.config
        which = self.best if self.best.is_file() else self.last
        if which == self.best:
            show_trained(self.history, self.best_epoch, config["validate"]["select"], console)
        for remark in self.remarks():
            console.print(Text(remark))
        console.print(Text(f"Audit it: {audit_command(config, which, self.root)}", "dim"), soft_wrap=True)

    @property
    def epochs(self) -> list[int]:
        """The epochs whose models were kept (train.keep)."""
        return TrainingFolder(self.folder).kept_epochs()

    def checkpoint(self, which: str | int = "best") -> Path:
        """The file of a model: "best", "last", or of an epoch that was kept, by its number."""
        return TrainingFolder(self.folder).checkpoint(which)

    def model(self, which: str | int = "best", device: str | torch.device | None = None) -> nn.Module:
        """The trained model, "best", "last", or of an epoch that was kept, in eval mode."""
        return load_model(self.checkpoint(which), device=device, trust=self.trust)

    def audit(self, attacks: Any = "pgd-20", which: str | int = "best", **settings: Any) -> Audit:
        """Audit the trained model on the test split of the data it was trained on, at the radius of its recipe."""
        config = self.config
        defaults = {
            "data": audit_data(config),
            "eps": config["threat"]["eps"],
            "norm": config["threat"]["norm"],
            "root": self.root,
            "trust": self.trust,
        }
        chosen = {**defaults, **settings}
        return audit(str(self.checkpoint(which)), chosen.pop("data"), attacks, chosen.pop("eps"), **chosen)
