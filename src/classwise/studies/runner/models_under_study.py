"""The models a study compares: existing checkpoints, or recipes that are trained first.

    --model runs/he/best.pt --model mart=zoo:cifar10/resnet16/mart-0 --recipe desk/cifar10/madry

A model is called by what is written before ``=``, else by its run folder or its recipe. Data, norm and radius are those
it was trained with, unless the study is given others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError, unknown
from classwise.core.run_folder import TrainingFolder
from classwise.core.threat import Norm, Threat
from classwise.models import zoo
from classwise.studies.runner.graph import JOB_NAME, AuditJob, DeriveJob, StudyJob, TrainJob, job_name
from classwise.training.recipe import load

#: The parts of a recipe, in which settings are changed.
PARTS = "data|method|model|threat|train|validate"
_NAMED = re.compile(rf"({JOB_NAME})=(.+)")
CHANGE_OF = re.compile(rf"({JOB_NAME})=((?:{PARTS})\..+)")


@dataclass(frozen=True, kw_only=True)
class ModelUnderStudy:
    """A model by its name: where its checkpoint is or will be, its data, the threat it is attacked with, and the
    training that makes it.

    The radius stays as it was written, "8/255" or 0.031: a finished job is recognised by that.
    """

    name: str
    checkpoint: str
    data: str
    eps: str | float
    norm: Norm
    training: TrainJob | None = None

    def __post_init__(self) -> None:
        _ = self.threat  # an error here, before any job has begun

    @property
    def jobs(self) -> tuple[StudyJob, ...]:
        return () if self.training is None else (self.training,)

    @property
    def threat(self) -> Threat:
        return Threat(self.norm, self.eps)  # type: ignore[arg-type]

    @property
    def threat_arguments(self) -> dict[str, Any]:
        """The threat as arguments of a derived job. The norm is left out where it is linf: jobs were written that way
        before there was another one, and are recognised by what they were written as."""
        return {"eps": self.eps, **({} if self.norm == "linf" else {"norm": self.norm})}

    def audit(self, suffix: str, attacks: Sequence[str], **options: Any) -> AuditJob:
        """An audit of this model under its threat, called by both names."""
        kept = {key: value for key, value in options.items() if value is not None} | self.threat_arguments
        eps, model = kept.pop("eps"), self.checkpoint
        name = f"{self.name}-{suffix}"
        return AuditJob(name, model=model, data=self.data, attacks=tuple(attacks), eps=eps, options=kept)

    def derive(self, suffix: str, function: str, **arguments: Any) -> DeriveJob:
        """A job that derives files from this model, called by both names."""
        return DeriveJob(f"{self.name}-{suffix}", function, {"model": self.checkpoint, **arguments})


@dataclass(frozen=True)
class Setting:
    """Data and threat to attack models with instead of those they were trained with; None keeps the model's own."""

    data: str | None = None
    eps: str | float | None = None
    norm: Norm | None = None

    def over(self, model: str, own: Setting) -> Setting:
        """This setting with the gaps filled from the model's own; a radius of one norm is none of another's."""
        if self.eps is None and own.eps is not None and self.norm not in (None, own.norm):
            raise UserError(
                f"{model} was trained in {own.norm} with eps {own.eps}, which is no radius in {self.norm}: give --eps "
                f"with --norm {self.norm}."
            )
        eps = own.eps if self.eps is None else self.eps
        return Setting(self.data or own.data, eps, self.norm or own.norm)

    def model(self, name: str, checkpoint: str, training: TrainJob | None = None) -> ModelUnderStudy:
        """A model in this setting, of which nothing may be missing."""
        if self.data is None or self.eps is None or self.norm is None:
            missing = [f"--{key}" for key, value in vars(self).items() if value is None]
            raise UserError(
                f"{checkpoint} does not say which data it is for, at which radius and in which norm: give "
                f"{', '.join(missing)}."
            )
        return ModelUnderStudy(
            name=name, checkpoint=checkpoint, data=self.data, eps=self.eps, norm=self.norm, training=training
        )


#: What each model was trained with.
OWN = Setting()


def find_models(
    checkpoints: Sequence[str], recipes: Sequence[str], changes: Sequence[str] = (), setting: Setting = OWN
) -> list[ModelUnderStudy]:
    """The checkpoints and the recipes to train, in that order; `changes` are settings of the recipes to change.

    A change is for all of them, ``train.epochs=75``, or for one, ``NAME=train.epochs=75``.
    """
    found = [from_checkpoint(text, setting) for text in checkpoints]
    for text in recipes:
        name, recipe = _named(text)
        name = name or Path(recipe).stem
        found.append(from_recipe(name, recipe, _changes_of(name, changes), setting))
    names = [model.name for model in found]
    for owner in (match[1] for text in changes if (match := CHANGE_OF.fullmatch(text))):
        if owner not in names:
            raise unknown("model of --set", owner, names)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two models would be called {name!r}; name them yourself: NAME=…")
    if not found:
        raise UserError("no model to study: give --model CHECKPOINT or --recipe RECIPE, each as often as you like.")
    return found


def from_recipe(
    name: str, recipe: str, changes: Sequence[str] = (), setting: Setting = OWN, which: str = "best"
) -> ModelUnderStudy:
    """A model to be trained by a recipe under a name of the study's own."""
    chosen = load(recipe, changes)
    own = Setting(chosen.data.name, chosen.threat.eps, chosen.threat.norm)
    training = TrainJob(name, recipe, tuple(changes))
    return setting.over(recipe, own).model(name, training.folder.checkpoint(which).as_posix(), training)


def from_checkpoint(text: str, setting: Setting) -> ModelUnderStudy:
    """A model that exists: a checkpoint, a run folder, or a spec that `load_model` knows; ``NAME=`` names it."""
    name, model = _named(text)
    if zoo.is_zoo(model):
        own = _own_setting(zoo.run_of(model).config())
        return setting.over(model, own).model(name or job_name(Path(model).name), model)
    path = Path(model)
    if path.is_dir():
        path = TrainingFolder(path).best
    if path.suffix in (".pt", ".pth", ".safetensors") and not path.is_file():
        raise UserError(f"there is no checkpoint {path}; give a file, a run folder of a training, or a --recipe.")
    config = TrainingFolder(path.parent).config()
    name = name or (path.parent.name if config else job_name(path.stem))
    return setting.over(model, _own_setting(config)).model(name, str(path.resolve()) if path.is_file() else model)


def _own_setting(config: Mapping[str, Any]) -> Setting:
    """Data and threat that a training's config.toml says."""
    threat = config.get("threat", {})
    norm = threat.get("norm", Threat.norm) if "eps" in threat else None
    return Setting(config.get("data", {}).get("name"), threat.get("eps"), norm)


def _changes_of(name: str, changes: Sequence[str]) -> list[str]:
    """The changes that concern a recipe of that name, without the name."""
    pairs = [(match[1], match[2]) if (match := CHANGE_OF.fullmatch(text)) else (name, text) for text in changes]
    return [change for owner, change in pairs if owner == name]


def _named(text: str) -> tuple[str | None, str]:
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)
