"""A table or figure of a paper reproduced: its study at desk or paper scale, printed numbers next to measured ones.

    plan = reproduce.plan("tian2021:table1", "desk")       # the study with its options, and what differs
    result = studies.run(plan, "runs/table1")
    result.tables["printed_and_measured"]                  # row, column, printed, ours, difference, misprint

The options of a table at each scale are in reproductions.toml, with what differs from the paper; what is printed, and
what the papers state about how it was made, is in `classwise.published`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from classwise import published, studies
from classwise.core.errors import UserError, unknown
from classwise.core.toml import tomllib
from classwise.data import class_names
from classwise.published.like import resolve_likes
from classwise.published.numbers import LABELS
from classwise.studies.reproduction import compared
from classwise.studies.reproduction.measured import READERS
from classwise.studies.reproduction.several import Several
from classwise.studies.runner import cost
from classwise.studies.runner.from_zoo import in_zoo
from classwise.studies.runner.graph import Graph, StudyJob
from classwise.studies.runner.result import Done, StudyResult
from classwise.studies.runner.study import Study

Scale = Literal["desk", "paper"]
_FILE = Path(__file__).parent / "reproductions.toml"


@dataclass(frozen=True)
class Differs:
    """A sentence about what differs from the paper, and the keys of the settings it is about (`compared`)."""

    keys: tuple[str, ...]
    says: str


@dataclass(frozen=True, kw_only=True)
class ReproductionPlan(Study):
    """A table or figure reproduced: a study, the printed numbers next to its own, and what differs from the paper."""

    item: published.Item
    study: Study
    data: str = "cifar10"
    differs: tuple[Differs, ...] = ()
    scale: Scale = "desk"

    def jobs(self) -> list[StudyJob]:
        return self.study.jobs()

    def result(self, done: Done) -> StudyResult:
        return with_printed_numbers(self, self.study.result(done))

    @property
    def title(self) -> str:
        return f"{self.item.title} ({self.item.id}, {self.scale} scale)"

    def settings(self) -> dict[str, Any]:
        return {"paper": self.item.citation}

    @property
    def sentences(self) -> tuple[str, ...]:
        """What differs from the paper."""
        return tuple(each.says for each in self.differs)


@functools.cache
def _file() -> tuple[dict[str, Differs], dict[str, dict[str, Any]]]:
    """The differences that plans share, and the plans."""
    found = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    shared = {name: _differs(each) for name, each in found.pop("shared").items()}
    return shared, resolve_likes(found, "plan")


def _differs(entry: Mapping[str, Any]) -> Differs:
    return Differs(tuple(entry["keys"]), entry["says"])


def names() -> list[str]:
    """The tables and figures that can be reproduced."""
    return [item.id for item in published.items() if item.study is not None]


@functools.cache
def plan(name: str, scale: Scale = "desk") -> ReproductionPlan:
    """The plan for a table or figure at a scale."""
    item = published.item(name)
    if item.study is None:
        raise UserError(f"{name} ({item.title}) is a sketch without anything to measure.")
    if scale not in ("desk", "paper"):
        raise unknown("scale", scale, ("desk", "paper"))
    shared, entries = _file()
    entry = entries[name]
    listed = [*entry.get("differs", ()), *entry.get({"desk": "small", "paper": "large"}[scale], ())]
    options = {"": entry[scale], **entry.get("parts", {}).get(scale, {})}
    parts = {label: studies.parse(item.study, own) for label, own in options.items()}
    return ReproductionPlan(
        item=item,
        study=parts[""] if len(parts) == 1 else Several(parts=parts),
        data=entry.get("data", "cifar10"),
        differs=tuple(shared[each] if isinstance(each, str) else _differs(each) for each in listed),
        scale=scale,
    )


@functools.cache
def graph(name: str, scale: Scale = "desk") -> Graph:
    """The jobs of a table or figure at a scale."""
    return Graph.of(plan(name, scale).study.jobs())


@functools.cache
def differences(name: str, scale: Scale = "desk") -> tuple[compared.Difference, ...]:
    """Every setting of a plan that is not what the paper states."""
    return tuple(compared.differences(published.settings(name), plan(name, scale).study, graph(name, scale)))


def hours(chosen: ReproductionPlan, zoo: bool = True) -> float | None:
    """About how long it takes on this machine, from counted operations; None if no job can be counted.

    zoo: without the trainings whose models the zoo has.
    """
    return _hours(chosen.study, zoo)


@functools.cache  # plans share studies
def _hours(study: Study, zoo: bool) -> float | None:
    jobs = Graph.of(study.jobs())
    there = in_zoo(jobs) if zoo else {}
    counted = [count for name, count in cost.seconds(jobs).items() if count is not None and name not in there]
    return sum(counted) / 3600 if counted else None


def with_printed_numbers(chosen: ReproductionPlan, result: StudyResult) -> StudyResult:
    """The study's result with the printed numbers before everything else."""
    stated = published.statements(chosen.item.id).drop(columns="item")
    tables = {"printed_and_measured": beside(chosen, result), **result.tables, "stated_in_the_paper": stated}
    for name in ("printed_and_measured", "stated_in_the_paper"):
        if not len(tables[name]):
            del tables[name]
    notes = (*chosen.sentences, *(f"In print: {note}" for note in chosen.item.notes), *result.notes)
    return replace(result, tables=tables, notes=notes)


def beside(chosen: ReproductionPlan, result: StudyResult) -> pd.DataFrame:
    """One row per printed number: what is printed, what was measured, the difference, and whether it is a misprint."""
    columns = ["row", "column", "printed", "ours", "difference", "misprint"]
    reader = READERS.get(chosen.item.id)
    if reader is None:
        return pd.DataFrame(columns=columns)
    numbers = {str(number): name for number, name in enumerate(class_names(chosen.data) or ())}
    measured = [
        ({key: _plain(text) for key, text in {"dataset": chosen.data, **labels}.items()}, own)
        for labels, own in reader(result, numbers)
    ]
    wrong = {(_plain(slip.row), _plain(slip.column)) for slip in chosen.item.misprints}
    rows = []
    for _, line in published.table(chosen.item.id).iterrows():
        labels = {name: _text(line[name]) for name in LABELS if name in line.index and pd.notna(line[name])}
        row, plain = ", ".join(labels.values()), {name: _plain(text) for name, text in labels.items()}
        ours: dict[str, float] = {}
        for known, own in measured:
            # A label that one side leaves out, such as the best 1/T found, does not distinguish rows.
            if all(plain[name] == text for name, text in known.items() if name in plain):
                ours |= own
        for column, printed in line.drop(list(labels)).items():
            if isinstance(printed, str) or pd.isna(printed) or str(column) in (*LABELS, "line"):
                continue
            own_value = ours.get(str(column), float("nan"))
            slip = "misprint" if (_plain(row), _plain(str(column))) in wrong else ""
            rows.append((row, str(column), float(printed), own_value, own_value - float(printed), slip))
    return pd.DataFrame(rows, columns=columns)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    """A label without its typography: ``FRL-RW`` and ``frl_rw`` are one."""
    return re.sub(r"[^a-z0-9.,]", "", text.lower())
