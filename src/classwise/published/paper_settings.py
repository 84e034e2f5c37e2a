"""What each paper states about how its tables and figures were made, as listed in settings.toml.

    settings("tian2021:table1").runs[0].attacks[2].step          0.003

A setting that the paper does not print is `NOT_STATED`. Values are the papers'; names of data sets, methods, attacks
and networks are this toolkit's, except for ``wideresnet-32-10``, the papers' name of WideResNet-34-10.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from classwise.core.toml import tomllib
from classwise.published.index import HOME, item
from classwise.published.like import resolve_likes
from classwise.published.numbers import LABELS, table

NOT_STATED = "not stated"


@dataclass(frozen=True, kw_only=True)
class StatedAttack:
    """An attack: steps and size of a step, radius and norm of the ball, the start, other settings by name.

    images: of each class, where they are fewer than the table's. surrogate: the model a transfer attack crafts on.
    where: the place in the papers.
    """

    attack: str
    steps: int | str = NOT_STATED
    step: float | str = NOT_STATED
    eps: float | str = NOT_STATED
    norm: str = NOT_STATED
    start: str = NOT_STATED
    images: int | str = NOT_STATED
    surrogate: str = NOT_STATED
    settings: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class StatedTraining:
    """A training: network, epochs, the epoch that is evaluated, optimiser, schedule, and the attack trained against.

    train_images: of each class, or all. held_out: of these, images of each class for validation. weights: "released"
    where the paper trains nothing itself. settings: of the method, by name.
    """

    network: str = NOT_STATED
    weights: str = NOT_STATED
    epochs: int | str = NOT_STATED
    checkpoint: int | str = NOT_STATED
    lr: float | str = NOT_STATED
    milestones: tuple[int, ...] | str = NOT_STATED
    schedule: str = NOT_STATED
    momentum: float | str = NOT_STATED
    weight_decay: float | str = NOT_STATED
    batch: int | str = NOT_STATED
    train_images: int | str = NOT_STATED
    held_out: int | str = NOT_STATED
    train_steps: int | str = NOT_STATED
    train_step: float | str = NOT_STATED
    train_eps: float | str = NOT_STATED
    train_start: str = NOT_STATED
    settings: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class StatedRun:
    """A model by its data set and method, how it was trained, and what it was attacked with."""

    data: str
    method: str
    training: StatedTraining
    attacks: tuple[StatedAttack, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A table or figure: where the paper describes it, its images, what it prints, and the models in it.

    images: of each class, or all. options: what is swept or examined, as options of the study. varied: the
    settings of a training that vary. every_epoch: whether models are shown during their training.
    """

    id: str
    where: str
    split: str = NOT_STATED
    images: int | str = NOT_STATED
    rows: str = NOT_STATED
    columns: str = NOT_STATED
    runs: tuple[StatedRun, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    every_epoch: bool = False


def settings(name: str) -> Settings:
    """What the paper states about a table or figure with measurements."""
    return _all()[item(name).id]


@functools.cache
def _all() -> dict[str, Settings]:
    found = tomllib.loads((HOME / "settings.toml").read_text(encoding="utf-8"))
    attacks = {key: StatedAttack(**own) for key, own in resolve_likes(found["attacks"], "attack").items()}
    trainings = {key: _training(own) for key, own in resolve_likes(found["trainings"], "training").items()}
    made = {}
    for name, entry in resolve_likes(found["items"], "item").items():
        runs = [
            StatedRun(
                data=run["data"],
                method=run["method"],
                training=trainings[run["training"]],
                attacks=tuple(attacks[key] for key in run.get("attacks", ())),
            )
            for run in entry.pop("runs", ())
        ]
        made[name] = Settings(id=name, **{**dict(_printed(name)), **entry}, runs=tuple(runs))
    return made


def _training(own: dict[str, Any]) -> StatedTraining:
    listed = {key: tuple(value) for key, value in own.items() if isinstance(value, list)}
    return StatedTraining(**{**own, **listed})


def _printed(name: str) -> Iterator[tuple[str, str]]:
    """Rows and columns of a printed table, by name."""
    if item(name).csv is None:
        return
    cells = table(name)
    labels = [label for label in LABELS if label in cells]
    rows = [", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in row if value == value)
            for row in cells[labels].itertuples(index=False)]  # fmt: skip
    yield "rows", "; ".join(rows)
    yield "columns", ", ".join(column for column in cells.columns.drop(labels) if column != "line")
