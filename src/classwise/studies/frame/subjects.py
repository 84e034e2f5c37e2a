"""The models a study looks at: checkpoints that are there, or recipes to be trained first.

    --model runs/he/best.pt --model mart=runs/mart/best.pt --recipe desk/cifar10/madry

A model is called by what stands before ``=``, else by its run folder or its recipe. Data and radius are those it was
trained with, unless the study is told others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.errors import UserError
from classwise.studies.frame.graph import Audit, Job, Train
from classwise.training.recipe import load, read

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.+-]*)=(.+)")


@dataclass(frozen=True)
class Subject:
    """A model by its name: where its checkpoint is or will be, the training that makes it, its data and radius."""

    name: str
    model: str
    data: str
    eps: str | float
    training: Train | None = None

    @property
    def jobs(self) -> tuple[Job, ...]:
        return () if self.training is None else (self.training,)

    def audit(self, suffix: str, attacks: Sequence[str], **options: Any) -> Audit:
        """An audit of this model, called by both names."""
        kept = {key: value for key, value in options.items() if value is not None}
        return Audit(f"{self.name}-{suffix}", self.model, self.data, tuple(attacks), self.eps, kept)


def subjects(
    models: Sequence[str] = (),
    recipes: Sequence[str] = (),
    changes: Sequence[str] = (),
    data: str | None = None,
    eps: str | float | None = None,
) -> list[Subject]:
    """The models given and the recipes to train, in that order; `changes` are settings of the recipes to change."""
    found = [_given(text, data, eps) for text in models] + [_trained(text, changes, data, eps) for text in recipes]
    names = [subject.name for subject in found]
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
    which: str = "best",
) -> Subject:
    """A model to be trained by a recipe under a name of the study's own."""
    chosen = load(recipe, changes)
    training = Train(name, recipe, tuple(changes))
    return Subject(name, f"{{{name}}}/{which}.pt", data or chosen.data.name, eps or chosen.threat.eps, training)


def _trained(text: str, changes: Sequence[str], data: str | None, eps: str | float | None) -> Subject:
    name, recipe = _named(text)
    return recipe_subject(name or Path(recipe).stem, recipe, changes, data, eps)


def _given(text: str, data: str | None, eps: str | float | None) -> Subject:
    name, model = _named(text)
    path = Path(model)
    if path.is_dir():
        path = path / "best.pt"
    if path.suffix in (".pt", ".pth", ".safetensors") and not path.is_file():
        raise UserError(f"there is no checkpoint {path}; give a file, a run folder of a training, or a --recipe.")
    config = read(path.parent / "config.toml") if (path.parent / "config.toml").is_file() else {}
    name = name or (path.parent.name if config else re.sub(r"[^A-Za-z0-9_.+-]+", "-", path.stem))
    data = data or config.get("data", {}).get("name")
    eps = eps or config.get("threat", {}).get("eps")
    if data is None or eps is None:
        raise UserError(f"{model} does not say which data it is for and at which radius: give --data and --eps.")
    return Subject(name, str(path.resolve()) if path.is_file() else model, data, eps)


def _named(text: str) -> tuple[str | None, str]:
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)
