"""A table or figure of a paper again: its study at desk or paper scale, printed numbers beside measured ones.

    plan = reproduce.plan("tian2021:table1", "desk")       # the study with its options, and what differs
    outcome = studies.run(plan.study, "runs/table1")
    reproduce.beside(plan, outcome)                        # row, column, printed, ours, difference, misprint

Which options a table takes at which scale stands in reproductions.toml; what is printed, in `classwise.published`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from classwise import published, studies
from classwise.datasets import class_names
from classwise.errors import UserError, unknown
from classwise.published.numbers import LABELS
from classwise.studies import cost
from classwise.studies.graph import Graph
from classwise.studies.outcome import Outcome
from classwise.studies.study import Study

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Scale = Literal["desk", "paper"]
_FILE = Path(__file__).parent / "reproductions.toml"


@dataclass(frozen=True)
class Plan:
    """How a table or figure is made again.

    table: the table of the study's outcome that holds its numbers. labels: which of that table's columns are the
    printed ones that name a row. values: printed columns that are called differently here. differs: what is not as in
    the paper.
    """

    item: published.Item
    study: Study
    table: str | None = None
    labels: Mapping[str, str] | None = None
    values: Mapping[str, str] | None = None
    data: str = "cifar10"
    differs: tuple[str, ...] = ()


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    found = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: {**found.get(entry.get("like", ""), {}), **entry} for name, entry in found.items()}


def names() -> list[str]:
    """The tables and figures that can be made again."""
    return [item.id for item in published.items() if item.study is not None]


def plan(name: str, scale: Scale = "desk") -> Plan:
    """The plan for a table or figure at a scale."""
    item = published.item(name)
    if item.study is None:
        raise UserError(f"{name} ({item.title}) is a sketch: there is nothing in it to measure.")
    if scale not in ("desk", "paper"):
        raise unknown("scale", scale, ("desk", "paper"))
    entry = _entries()[name]
    return Plan(
        item,
        studies.parse(item.study, entry[scale]),
        entry.get("table"),
        entry.get("labels"),
        entry.get("values"),
        entry.get("data", "cifar10"),
        tuple(entry.get("differs", ())) + (tuple(entry.get("small", ())) if scale == "desk" else ()),
    )


def hours(chosen: Plan) -> float | None:
    """About how long it takes on this machine, from counted operations; None where no job can be counted."""
    counted = [count for count in cost.operations(Graph.of(chosen.study.jobs())).values() if count is not None]
    return sum(counted) / cost.operations_per_second() / 3600 if counted else None


def with_outcome(chosen: Plan, outcome: Outcome) -> Outcome:
    """The study's outcome with the printed numbers before everything else."""
    tables = {"printed_and_measured": beside(chosen, outcome), **outcome.tables}
    said = published.statements(chosen.item.id)
    if len(said):
        tables["stated_in_the_paper"] = said.drop(columns="item")
    if not len(tables["printed_and_measured"]):
        del tables["printed_and_measured"]
    notes = (*chosen.differs, *(f"In print: {note}" for note in chosen.item.notes), *outcome.notes)
    return replace(outcome, tables=tables, notes=notes)


def beside(chosen: Plan, outcome: Outcome) -> pd.DataFrame:
    """One row per printed number: what is printed, what was measured, the difference, and whether it is a misprint."""
    columns = ["row", "column", "printed", "ours", "difference", "misprint"]
    if chosen.item.csv is None or chosen.table is None:
        return pd.DataFrame(columns=columns)
    ours = _ours(chosen, outcome)
    wrong = {(_plain(slip.row), _plain(slip.column)) for slip in chosen.item.misprints}
    rows = []
    for _, line in published.table(chosen.item.id).iterrows():
        labels = [name for name in LABELS if name in line.index and pd.notna(line[name])]
        row = ", ".join(_text(line[name]) for name in labels)
        key = tuple(_plain(_text(line[name])) for name in labels if name in (chosen.labels or {}))
        for column, value in line.drop(labels).items():
            if isinstance(value, str) or pd.isna(value) or str(column) == "line":
                continue
            own = ours.get((*key, str(column)))
            slip = "misprint" if (_plain(row), _plain(str(column))) in wrong else ""
            rows.append((row, str(column), float(value), own, None if own is None else own - value, slip))
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"ours": float, "difference": float})


def _ours(chosen: Plan, outcome: Outcome) -> dict[tuple[str, ...], float]:
    """Measured numbers by the printed labels of their row and the printed name of their column."""
    assert chosen.table is not None
    frame = outcome.tables[chosen.table]
    labels, values = dict(chosen.labels or {}), dict(chosen.values or {})
    classes = {str(number): name for number, name in enumerate(class_names(chosen.data) or ())}
    printed = published.table(chosen.item.id).columns
    found = {}
    for _, line in frame.iterrows():
        key = tuple(_plain(_text(line[labels[name]])) for name in LABELS if name in labels)
        for column in map(str, printed):
            own = values.get(column, classes.get(column, column))
            if column not in labels and own in line.index and pd.notna(line[own]):
                found[(*key, column)] = float(line[own])
    return found


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    """A label without its typography: ``FRL-RW`` and ``frl_rw`` are one, and so are ``pgd-20`` and ``PGD``."""
    return re.sub(r"[^a-z0-9.,]", "", re.sub(r"-\d+$", "", text.lower()))
