"""Studies whose trainings differ in one setting of a recipe, each repeated with some seeds."""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from classwise import methods
from classwise.core.errors import UserError, index_of
from classwise.core.meta import Protocol
from classwise.core.records import Records
from classwise.core.threat import Norm
from classwise.data import class_names as known_classes
from classwise.show.figures import sweep
from classwise.show.figures.style import Chart
from classwise.studies.runner.epochs import at_epoch
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_recipe
from classwise.studies.runner.result import Done, StudyResult
from classwise.studies.runner.study import Study
from classwise.studies.shared import over_seeds
from classwise.studies.shared.together import columns_in_percent, of_models
from classwise.training.recipe import Recipe, load

ONE_SEED = (
    "Each setting was trained once: the intervals cover the choice of test images, not what another seed would do. "
    "--seeds 0,1,2 covers both."
)


@dataclass(frozen=True)
class Variant:
    """A training by its name: a recipe and the settings changed in it."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Variants(Study):
    """A study of trainings that differ in one setting.

    set: settings of the recipes to change in all of them. seeds: each variant is trained once with each. attack: what
    robustness is measured by; under several an image is robust if it survives all. data, eps, norm: of the audits,
    instead of what the recipe says. epoch: audit the model after this epoch instead of the best one. per_class: test
    images of each class. protocol: "final" judges the last step alone, as the papers' code does. seed: of the audits.
    """

    set: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    attack: tuple[str, ...] = ("pgd-20",)
    data: str | None = None
    eps: str | None = None
    norm: Norm | None = None
    epoch: int | None = None
    per_class: int | None = None
    protocol: Protocol = "any"
    seed: int = 0

    @abc.abstractmethod
    def variants(self) -> list[Variant]:
        """The trainings."""

    def jobs(self) -> list[StudyJob]:
        if not self.seeds:
            raise UserError("no seed to train with: give at least one, such as --seeds 0.")
        models = [self._model(variant, seed) for variant in self.variants() for seed in self.seeds]
        audits = [each.audit("audit", self.attack, per_class=self.per_class, **self.audit_options()) for each in models]
        return [*(job for model in models for job in model.jobs), *audits]

    def audit_options(self) -> dict[str, Any]:
        """Options of every audit. The usual protocol is left out, so that jobs of earlier runs are recognised."""
        return {"seed": self.seed, "protocol": None if self.protocol == "any" else self.protocol}

    def rows(self, done: Done, variant: Variant, attack: str | None = None) -> list[Records]:
        """The records of a variant for each seed, under one attack or under all of them."""
        return [done.rows(f"{self._name(variant, seed)}-audit", attack) for seed in self.seeds]

    def runs(self, done: Done, values: Sequence[float]) -> dict[float, list[Records]]:
        """The records of the variants by the value that each has of a swept setting."""
        return dict(zip(values, (self.rows(done, variant) for variant in self.variants()), strict=True))

    def notes(self) -> tuple[str, ...]:
        return (ONE_SEED,) if len(self.seeds) == 1 else ()

    def _name(self, variant: Variant, seed: int) -> str:
        return variant.name if len(self.seeds) == 1 else f"{variant.name}-seed{seed}"

    def _model(self, variant: Variant, seed: int) -> ModelUnderStudy:
        changes = (*self.set, *variant.changes, f"train.seed={seed}")
        setting = Setting(self.data, self.eps, self.norm)
        return at_epoch(from_recipe(self._name(variant, seed), variant.recipe, changes, setting), self.epoch)


def class_setting(source: str, changes: Sequence[str], setting: str, names: Sequence[str]) -> tuple[list[str], float]:
    """The classes a user named, and the recipe's value of the setting that is swept for them, the same for all."""
    recipe = with_setting(source, changes, setting)
    classes, value = chosen(recipe, names), getattr(recipe.method, setting)
    if not isinstance(value, (int, float)):
        raise UserError(
            f"the recipe has a {setting} for each class ({value}); start from one that has a single {setting}, since "
            "the study itself changes it class by class."
        )
    return classes, float(value)


def with_setting(source: str, changes: Sequence[str], setting: str) -> Recipe:
    """A recipe whose method has that setting; else an error."""
    recipe = load(source, changes)
    if not hasattr(recipe.method, setting):
        name = methods.name_of(recipe.method)
        raise UserError(f"{source} trains {name}, which has no setting {setting}; choose a recipe whose method does.")
    return recipe


def classes_of(recipe: Recipe) -> tuple[str, ...] | None:
    """The classes a recipe trains on, as far as they are known without reading the data."""
    known = known_classes(recipe.data.name)
    if known is None:
        return None
    gone = {index_of(name, known, f"class of {recipe.data.name}") for name in recipe.data.exclude}
    return tuple(name for number, name in enumerate(known) if number not in gone)


def chosen(recipe: Recipe, names: Sequence[str]) -> list[str]:
    """The classes a user named, as the data set calls them; an error where there is none, or none of that name."""
    if not names:
        raise UserError("name the class whose setting is changed: --class-name CLASS, as often as you like.")
    known = classes_of(recipe)
    given = [part for text in names for part in ([text] if known and text in known else text.split(","))]
    found = given if known is None else [known[index_of(n, known, f"class of {recipe.data.name}")] for n in given]
    return list(dict.fromkeys(found))


def class_values(setting: str, names: Sequence[str], value: float, others: float) -> str:
    """A change of a recipe: one value for the named classes, another for all others."""
    own = {**dict.fromkeys(names, value), "*": others}
    return f"method.{setting}={{{', '.join(f'{json.dumps(name)} = {number!r}' for name, number in own.items())}}}"


def check_sweep(setting: str, values: Sequence[float], most: float = float("inf")) -> None:
    """An error unless there is something to sweep, within what the setting allows."""
    for value in values:
        if not 0 <= value < most:
            upper = "" if most == float("inf") else f" and below {most:g}"
            raise UserError(f"--{setting} {value:g}: it must be at least 0{upper}.")
    if len(set(values)) < 2:
        raise UserError(f"a sweep needs at least two values of {setting}: --{setting} 0.5,2,6.")


def sweep_result(
    runs: Mapping[float, Sequence[Records]], base: float, setting: str, title: str, highlight: Sequence[str] = ()
) -> StudyResult:
    """The accuracy of each class at each value, its changes against the base value, and the figure of both."""
    changes = {value: over_seeds.changes(runs[base], own) for value, own in runs.items() if value != base}
    tables = {
        "robustness": swept(runs, setting),
        "changes": of_models({v: changes_in_percent(t) for v, t in changes.items()}, setting),
    }
    chart, rows = sweep_chart(runs, title, highlight), sweep_rows(runs, title)
    return StudyResult(tables, figures={"sweep": chart}, data={"sweep": rows})


def swept(runs: Mapping[float, Sequence[Records]], setting: str) -> pd.DataFrame:
    """The accuracy of each class at each value, in percent: the setting, class, n, robust, low, high."""
    frame = of_models({value: over_seeds.by_class(rows) for value, rows in runs.items()}, setting)
    shown = columns_in_percent(frame, "accuracy", "low", "high").rename(columns={"accuracy": "robust (%)"})
    return shown[[setting, "class", "n", "robust (%)", "low", "high"]]


def sweep_rows(runs: Mapping[float, Sequence[Records]], title: str) -> pd.DataFrame:
    """The accuracy of each class at each value as the figure expects it; title: what is swept."""
    found = [over_seeds.by_class(rows).assign(value=value, setting=title) for value, rows in runs.items()]
    return pd.concat(found, ignore_index=True)


def sweep_chart(runs: Mapping[float, Sequence[Records]], title: str, highlight: Sequence[str] = ()) -> Chart:
    """The same, drawn; on a logarithmic axis if the values span more than a factor of ten."""
    return sweep.draw(sweep_rows(runs, title), title, log=sweep.wants_log(runs), highlight=list(highlight) or None)


def changes_in_percent(table: pd.DataFrame) -> pd.DataFrame:
    shown = {"base": "base (%)", "accuracy": "robust (%)", "change": "change (points)", "p_holm": "p (Holm)"}
    return columns_in_percent(table, "base", "accuracy", "change", "low", "high").rename(columns=shown)
