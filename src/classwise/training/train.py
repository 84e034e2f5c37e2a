"""`train` takes a recipe, fills a run folder and returns a `Trained` that reads it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from rich.console import Console
from rich.text import Text
from torch import nn

from classwise import methods
from classwise.attacks.attack import Attack
from classwise.auditing.audit import audit
from classwise.auditing.config import AuditSettings
from classwise.auditing.inputs import Eps, default_device
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.run_config import plain
from classwise.core.run_folder import TrainingFolder
from classwise.core.run_lock import writing
from classwise.core.settings import with_settings
from classwise.core.trust import trusting
from classwise.methods.method import TeacherName
from classwise.models import load_model, read_checkpoint
from classwise.models.check import check_device
from classwise.models.loading import names_code
from classwise.results.audit_result import Audit
from classwise.results.training_result import TrainingResult
from classwise.training import choices, recipe
from classwise.training.audit_command import audit_command, audit_data
from classwise.training.cautions import cautions, idle, undertrained, without_signal
from classwise.training.choices import Choice
from classwise.training.loop import fit
from classwise.training.options import SETTINGS, Options, TrainSettings
from classwise.training.prepare import examples, network_of, prepare, split_off
from classwise.training.processes import local_device, process_group, restarted
from classwise.training.progress_display import ProgressDisplay, show_trained
from classwise.training.recipe import Recipe
from classwise.training.start import open_folder, require_same_start, resume
from classwise.training.teachers import teachers_of
from classwise.training.tracking import open_trackers

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
@with_settings(SETTINGS, TrainSettings)
def train(
    source: str | Path | dict[str, Any] | Recipe | None = None,
    *,
    out: str | Path,
    data: Any = None,
    model: str | Path | nn.Module | None = None,
    teacher: str | Path | nn.Module | None = None,
    teacher_clean: str | Path | nn.Module | None = None,
    **settings: Unpack[TrainSettings],
) -> Trained:
    """Train by a recipe, or by a method with a model and images, in a run folder. The same call resumes a training that
    was killed.

    What is given besides a recipe replaces its fields. Without a recipe, what is not given is chosen for the images and
    the model, shown, and stored in the run folder, whose config.toml is a recipe. A module given as the model is
    trained in place; teachers are not changed.
    """
    module, images = model if isinstance(model, nn.Module) else None, None if isinstance(data, str) else data
    if module is not None and (settings.get("weights") or settings.get("normalize")):
        raise UserError("weights and normalize belong to a model spec; load_model(module, weights=…) takes both.")
    wanted: dict[TeacherName, Any] = {"teacher": teacher, "teacher_clean": teacher_clean}
    teachers_given = {name: one if isinstance(one, nn.Module) else None for name, one in wanted.items()}
    named: dict[str, Any] = {name: one for name, one in wanted.items() if teachers_given[name] is None}
    free = source is None  # what was given as an object then has the name that the folder says of it
    named["model"] = model if module is None else type(module).__name__ if free else None
    named["data"] = data if images is None else getattr(images, "name", "data") if free else None
    options = Options.of(**named, **settings)
    how = options.given
    chosen = choices.begin(source, options)
    root, download, trust, folder = how.get("root"), how.get("download", False), how.get("trust", False), Path(out)
    device = how.get("device")
    where = local_device(default_device() if device is None else check_device(device))
    if chosen.train.amp is not None and where.type == "cpu":
        raise UserError(f"train.amp = {chosen.train.amp} is for GPUs: on a CPU it is slow, on some unsupported.")
    with process_group(where) as processes, ExitStack() as held:
        with processes.failing_together():
            held.enter_context(writing(out if processes.first else None))
        with processes.failing_together():
            with processes.first_alone():  # it may download
                everything = examples(chosen, root, download, images)
            with trusting(trust):
                network = network_of(chosen, module, everything, where)
                chosen, made = choices.complete(options, everything, network) if free else (chosen, [])
                kept, held_out = split_off(chosen, everything)
                teachers = teachers_of(chosen, kept, where, teachers_given)
            # Everything that can be wrong with a recipe is an error before the folder is touched.
            training, start = prepare(
                chosen, network, kept, held_out, teachers=teachers, folder=folder, processes=processes, root=root,
                download=download, profile=how.get("profile", False),
            )  # fmt: skip
        require_same_start(training, everything)
        with processes.failing_together():
            if processes.first:
                for sentence in cautions(chosen, everything.class_names):
                    warnings.warn(sentence, stacklevel=2)
                given: dict[str, Any] = {"data": images, "model": module}
                given |= {str(name): one for name, one in teachers_given.items()}
                open_folder(training, everything, root, given, how.get("overwrite", False) and not restarted())
        start = resume(training, start)
        known = plain(chosen.settings())
        resumed = start.epoch if start.history else None
        tracker = open_trackers(how.get("trackers", ()) if processes.first else (), folder, folder.name, known, resumed)
        display = ProgressDisplay(
            epochs=chosen.train.epochs,
            attacks=training.attacks,
            tracker=tracker,
            show=how.get("progress"),
            quiet=not processes.first,
        )
        display.begin(made, TrainingFolder(folder).config_file, start)
        with display.running():
            fit(training, start, display)
        processes.wait()
        if processes.first and (remarks := Trained(folder).remarks()):
            TrainingFolder(folder).write_remarks(remarks)
    trusted = trust or names_code(chosen.model.spec)
    return Trained(folder, root, quiet=not processes.first, trust=trusted, choices=tuple(made))


def planned(source: str | Path | dict[str, Any] | Recipe | None, options: Options) -> Recipe:
    """The whole recipe of a training that is not begun. Without a recipe it reads the images and builds the model."""
    chosen = choices.begin(source, options)
    if source is not None:
        return chosen
    everything = examples(chosen, options.given.get("root"), options.given.get("download", False), None)
    with trusting(options.given.get("trust", False)):
        network = network_of(chosen, None, everything, torch.device("cpu"))
    return choices.complete(options, everything, network)[0]


@dataclass(frozen=True)
class Trained:
    """A run folder of a training, finished or not."""

    folder: Path
    root: str | Path | None = None
    quiet: bool = False  # in all processes but the first
    trust: bool = False  # whether the Python file that makes the model may be run
    choices: tuple[Choice, ...] = ()  # settings that were chosen because nobody gave them, with the reasons

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

    @property
    def result(self) -> TrainingResult:
        """What it came to on its held-out images: the selected epoch, and its classes with intervals."""
        return TrainingResult.load(TrainingFolder(self.folder))

    def _repr_html_(self) -> str:
        return self.result._repr_html_()

    def chart(self, name: str | None = None, **options: Any) -> Any:
        """A figure of the training: by default the accuracy of every class over the epochs."""
        return self.result.chart(name, **options)

    def remarks(self) -> tuple[str, ...]:
        """Why the training ended early, if it did, and the method's remarks on its state, such as WAT's bound."""
        settings = self.config
        stored = read_checkpoint(self.last)["classwise"]["extra"]["training"]
        early = (f"Stopped early: {stored['stopped']}.",) if stored["stopped"] else ()
        if not methods.knows(settings["method"]["name"]):  # a class that was only given in Python
            return early
        made = recipe.build(settings)
        choice = self.history, made.validate.select, stored["best_epoch"]
        selected = (*without_signal(*choice), *undertrained(*choice))
        return (*early, *idle(made), *selected, *made.method.remarks(stored["state"]))

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
        self._require_spec()
        return load_model(self.checkpoint(which), device=device, trust=self.trust)

    def audit(
        self,
        attacks: str | Attack | Sequence[str | Attack] = "pgd-20",
        which: str | int = "best",
        *,
        data: Any = None,
        eps: Eps | None = None,
        **settings: Unpack[AuditSettings],
    ) -> Audit:
        """Audit the trained model on the test split of the data it was trained on, at the radius of its recipe, or with
        the data and the radius given; the settings are those of `audit`."""
        self._require_spec("data" if data is None else "")
        config = self.config
        own: AuditSettings = {"norm": config["threat"]["norm"], "root": self.root, "trust": self.trust, **settings}
        images = audit_data(config) if data is None else data
        return audit(
            str(self.checkpoint(which)), images, attacks, config["threat"]["eps"] if eps is None else eps, **own
        )

    def _require_spec(self, *besides: str) -> None:
        """Raise where the model, or something else that is needed, was given in Python, so that no file names it."""
        for name in {"model", *besides} & {*self.config.get("run", {}).get("given", ())}:
            remedy = {"model": f"use cw.load_model(model, {str(self.best)!r})", "data": "give audit(data=…)"}[name]
            raise UserError(
                f"the {name} of {self.folder} was given in Python, and no file says how to make it: {remedy}."
            )
