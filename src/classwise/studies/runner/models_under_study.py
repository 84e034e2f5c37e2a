"""The models a study looks at: checkpoints that are there, or recipes to be trained first.

    --model runs/he/best.pt --model mart=runs/mart/best.pt --recipe desk/cifar10/madry

A model is called by what stands before ``=``, else by its run folder or its recipe. Data, norm and radius are those it
was trained with, unless the study is told others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError, unknown
from classwise.core.threat import Norm, Threat
from classwise.studies.runner.graph import Audit, StudyJob, Train
from classwise.training.recipe import load, read

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.+-]*)=(.+)")
_CHANGE_OF = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.+-]*)=((?:data|method|model|threat|train|validate)\..+)")


@dataclass(frozen=True)
class ModelUnderStudy:
    """A model by its name: where its checkpoint is or will be, its data, the threat it is attacked with, and the
    training that makes it.

    The radius stays as it was written, "8/255" or 0.031: a finished job is recognised by that.
    """

    name: str
    model: str
    data: str
    eps: str | float
    norm: Norm
    training: Train | None = None

    def __post_init__(self) -> None:
        _ = self.threat  # an error here, before any job has begun

    @property
    def jobs(self) -> tuple[StudyJob, ...]:
        return () if self.training is None else (self.training,)

    @property
    def threat(self) -> Threat:
        return Threat(self.norm, self.eps)  # type: ignore[arg-type]

    @property
    def norm_option(self) -> dict[str, Norm]:
        """The norm as an argument of a job, left out where it is linf: jobs were written that way before there was
        another one, and are found by what they were written as."""
        return {} if self.norm == "linf" else {"norm": self.norm}

    def audit(self, suffix: str, attacks: Sequence[str], **options: Any) -> Audit:
        """An audit of this model under its threat, called by both names."""
        kept = {key: value for key, value in options.items() if value is not None} | self.norm_option
        return Audit(f"{self.name}-{suffix}", self.model, self.data, tuple(attacks), self.eps, kept)


def subjects(
    models: Sequence[str] = (),
    recipes: Sequence[str] = (),
    changes: Sequence[str] = (),
    data: str | None = None,
    eps: str | float | None = None,
    norm: Norm | None = None,
) -> list[ModelUnderStudy]:
    """The models given and the recipes to train, in that order; `changes` are settings of the recipes to change.

    A change is for all of them, ``train.epochs=75``, or for one, ``NAME=train.epochs=75``.
    """
    found = [_given(text, data, eps, norm) for text in models]
    found += [_trained(text, changes, data, eps, norm) for text in recipes]
    names = [subject.name for subject in found]
    for owner in (match[1] for text in changes if (match := _CHANGE_OF.fullmatch(text))):
        if owner not in names:
            raise unknown("model of --set", owner, names)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two models would be called {name!r}; name them yourself: NAME=…")
    if not found:
        raise UserError("no model to look at: give --model CHECKPOINT or --recipe RECIPE, each as often as you like.")
    return found


def recipe_subject(
    name: str,
    recipe: str,
    changes: Sequence[str] = (),
    data: str | None = None,
    eps: str | float | None = None,
    norm: Norm | None = None,
    which: str = "best",
) -> ModelUnderStudy:
    """A model to be trained by a recipe under a name of the study's own."""
    chosen = load(recipe, changes)
    eps, norm = _threat(recipe, eps, norm, chosen.threat.eps, chosen.threat.norm)
    training = Train(name, recipe, tuple(changes))
    return ModelUnderStudy(name, f"{{{name}}}/{which}.pt", data or chosen.data.name, eps, norm, training)


def _threat(
    model: str, eps: str | float | None, norm: Norm | None, own_eps: str | float, own_norm: Norm
) -> tuple[str | float, Norm]:
    """What is asked for, else the model's own; a radius of one norm is none of another's."""
    if eps is None and norm not in (None, own_norm):
        raise UserError(
            f"{model} was trained in {own_norm} with eps {own_eps}, which is no radius in {norm}: give --eps with "
            f"--norm {norm}."
        )
    return own_eps if eps is None else eps, norm or own_norm


def _trained(
    text: str, changes: Sequence[str], data: str | None, eps: str | float | None, norm: Norm | None
) -> ModelUnderStudy:
    name, recipe = _named(text)
    name = name or Path(recipe).stem
    own = [match[2] if (match := _CHANGE_OF.fullmatch(each)) else each for each in changes if _concerns(name, each)]
    return recipe_subject(name, recipe, own, data, eps, norm)


def _concerns(name: str, change: str) -> bool:
    match = _CHANGE_OF.fullmatch(change)
    return match is None or match[1] == name


def _given(text: str, data: str | None, eps: str | float | None, norm: Norm | None) -> ModelUnderStudy:
    name, model = _named(text)
    path = Path(model)
    if path.is_dir():
        path = path / "best.pt"
    if path.suffix in (".pt", ".pth", ".safetensors") and not path.is_file():
        raise UserError(f"there is no checkpoint {path}; give a file, a run folder of a training, or a --recipe.")
    config = read(path.parent / "config.toml") if (path.parent / "config.toml").is_file() else {}
    name = name or (path.parent.name if config else re.sub(r"[^A-Za-z0-9_.+-]+", "-", path.stem))
    data, threat = data or config.get("data", {}).get("name"), config.get("threat", {})
    if "eps" in threat:
        eps, norm = _threat(model, eps, norm, threat["eps"], threat.get("norm", Threat.norm))
    missing = [f"--{key}" for key, value in (("data", data), ("eps", eps), ("norm", norm)) if value is None]
    if data is None or eps is None or norm is None:
        raise UserError(
            f"{model} does not say which data it is for, at which radius and in which norm: give {', '.join(missing)}."
        )
    return ModelUnderStudy(name, str(path.resolve()) if path.is_file() else model, data, eps, norm)


def _named(text: str) -> tuple[str | None, str]:
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)
