"""The options of a training, with or without a recipe: those of an audit that a training has too, and its own.

    cw.train(method="wat", model="net.py:make", data="folder:resize=32", eps="4/255", out="runs/wat")
    classwise train --method wat --model net.py:make --data folder:resize=32 --eps 4/255 --out runs/wat

Each that is given sets a field of the recipe; what is not given is the recipe's, or chosen (`training.choices`) where
there is no recipe. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from classwise.auditing.config import AuditConfig
from classwise.core.arguments import argument
from classwise.core.meta import Norm
from classwise.core.settings import Part, Setting, setting, settings_of
from classwise.core.spec import Count, Positive, check_keys, split, written

if TYPE_CHECKING:
    import torch

    from classwise.methods.method import Method

# fmt: off
# Of the options that an audit has too: what is said of them here, where that is not the same.
_SHARED = {
    "model": "", "weights": "Weights to start from: fine-tuning.", "normalize": "", "trust": "",
    "data": "", "limit": "", "per_class": "", "root": "", "split": "Which split to train on; train by default.", "download": "",
    "eps": "Radius, with pixels in [0,1]; 8/255 by default.", "norm": "",
    "seed": "Seed of initial weights, batches and attacks; 0 by default.",
    "device": "", "out": "", "overwrite": "", "progress": "",
}


@dataclass(frozen=True, kw_only=True)
class TrainingPart(Part):
    """The method, and how long it trains."""

    source: Any = setting(None, "A recipe's file, the name of a shipped one (cifar10/trades), nested settings, or a Recipe.", option="")
    method: Any = setting(None, "Training method, e.g. wat or trades:beta=3; see classwise list methods.", also="Or a Method.")
    teacher: Any = setting(None, "Trained model to distil, for methods that need one: a checkpoint, or a model spec.", also="Or an nn.Module.")
    teacher_clean: Any = setting(None, "The accurate second teacher of methods that have one.", also="Or an nn.Module.")
    epochs: Count | None = setting(None, "Number of epochs.")
    batch: Count | None = setting(None, "Examples in a batch.")
    lr: Positive | None = setting(None, "Learning rate of the optimiser.")
    changes: Sequence[str] = setting((), "Change any setting of the recipe: train.clip=1; repeatable.", option="--set -s", takes=list[str])


@dataclass(frozen=True, kw_only=True)
class TrackingPart(Part):
    """Where else the history goes."""

    trackers: Sequence[str] = setting((), "tensorboard, mlflow or wandb, besides history.csv; repeatable.", option="--track", takes=list[str])
    profile: bool = setting(False, "Print where each epoch's time goes, and store it in history.csv.")
# fmt: on


@dataclass(frozen=True, kw_only=True)
class _Own:
    training: TrainingPart = field(default_factory=TrainingPart)
    output: TrackingPart = field(default_factory=TrackingPart)


def _settings() -> dict[str, Setting]:
    """By name and in panels: what is not given is not the audit's default but the recipe's, or chosen."""
    of_audit, own = settings_of(AuditConfig), settings_of(_Own)
    shared = {
        name: dataclasses.replace(
            of_audit[name],
            text=text or of_audit[name].text,
            default=of_audit[name].default if of_audit[name].kind is bool else None,
        )
        for name, text in _SHARED.items()
    }
    shared["seed"] = dataclasses.replace(shared["seed"], group="training")
    shared["progress"] = dataclasses.replace(shared["progress"], default=None)
    merged = {**own, **shared}
    panels = ("training", "model", "data", "threat", "resources", "output")
    return {name: one for panel in panels for name, one in merged.items() if one.group == panel}


SETTINGS: Mapping[str, Setting] = _settings()

#: The part and the field of a recipe that an option sets, where it is not the audit's group and field.
_PLACES = {"epochs": ("train", "epochs"), "batch": ("train", "batch"), "seed": ("train", "seed")}
_PARTS = ("model", "data", "threat")  # of an audit's config and of a recipe
_BESIDES = ("root", "download", "trust")  # of these parts: how the files are found and read, which no recipe says


class TrainSettings(TypedDict, total=False):
    """The settings of `train`, as editors and type checkers are to know them."""

    method: str | Method | None
    epochs: int | None
    batch: int | None
    lr: float | None
    seed: int | None
    changes: Sequence[str]
    weights: str | Path | None
    normalize: str | Sequence[Sequence[float]] | None
    trust: bool
    limit: int | None
    per_class: int | None
    root: str | Path | None
    split: str | None
    download: bool
    eps: float | str | None
    norm: Norm | None
    device: str | torch.device | None
    trackers: Sequence[str]
    profile: bool
    overwrite: bool
    progress: bool | None


@dataclass(frozen=True)
class Options:
    """The options that were given, checked."""

    given: Mapping[str, Any]

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Those that are given, by their names in Python; None is not given."""
        check_keys(given, SETTINGS, "a training")
        known = {name: value for name, value in given.items() if value is not None}
        return cls({name: argument(value, SETTINGS[name].hint, name) for name, value in known.items()})

    @property
    def changes(self) -> Sequence[str]:
        """Changes of any setting, such as train.clip=1."""
        found: Sequence[str] = self.given.get("changes", ())
        return found

    def tree(self) -> dict[str, dict[str, Any]]:
        """The parts of a recipe that they set; the learning rate is part of the optimiser and not among them."""
        made: dict[str, dict[str, Any]] = {}
        for name, value in self.given.items():
            one = SETTINGS[name]
            shared = (one.group, one.field) if one.group in _PARTS and name not in _BESIDES else None
            if (place := _PLACES.get(name, shared)) is not None:
                made.setdefault(place[0], {})[place[1]] = _plain(name, value)
        for name in ("teacher", "teacher_clean"):
            if name in self.given:
                value = str(self.given[name])
                made[name] = {"weights" if Path(value).is_file() else "spec": value}
        if isinstance(method := self.given.get("method"), str):
            name, own = split(method)
            made["method"] = {"name": name, **own}
        return made


def _plain(name: str, value: Any) -> Any:
    """A value as a recipe's file can have it."""
    if name == "normalize" and not isinstance(value, str):
        from classwise.models.normalize import constants  # needs torch, which options do without

        mean, std = constants(value) or ((), ())
        return f"mean={written(list(mean))},std={written(list(std))}"
    return str(value) if isinstance(value, Path) else value
