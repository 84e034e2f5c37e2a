"""Every table and figure of the papers by id, such as ``tian2021:table1``, as listed in index.toml."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from classwise.core.errors import lookup
from classwise.core.toml import tomllib

HOME = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Misprint:
    """A printed number that does not follow from those beside it. The row ``text`` is a number of the running text."""

    row: str
    column: str
    printed: float
    expected: float
    why: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table, figure, theorem or planned experiment of a paper.

    citation: the paper.
    shows: in one line, what the paper reads from it.
    study: the study that reproduces it; None where nothing is measured.
    csv: the file of its numbers, if it prints any.
    columns: what the columns of that file are, and their units.
    digits: whether its last printed digit is truncated or rounded.
    misprints: the numbers `recomputed` finds wrong.
    notes: inconsistencies that cannot be resolved from the paper.
    """

    id: str
    citation: str
    title: str
    shows: str
    study: str | None = None
    csv: str | None = None
    columns: str = ""
    digits: Literal["rounded", "truncated"] = "rounded"
    misprints: tuple[Misprint, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """The part of the id before the colon."""
        return self.id.partition(":")[0]

    @property
    def place(self) -> str:
        """The part of the id after the colon: ``table1``, ``figure4a``, ``section3.1``."""
        return self.id.partition(":")[2]


def items() -> list[Item]:
    """Every item of every paper, paper by paper."""
    return list(_by_id().values())


def item(name: str) -> Item:
    """The item with this id."""
    return lookup("table or figure", name, _by_id())


@functools.cache
def _by_id() -> dict[str, Item]:
    papers = tomllib.loads((HOME / "index.toml").read_text(encoding="utf-8"))
    found = [
        _item(f"{paper}:{place}", entries["citation"], fields)
        for paper, entries in papers.items()
        for place, fields in entries.items()
        if place != "citation"
    ]
    return {entry.id: entry for entry in found}


def _item(name: str, citation: str, fields: dict[str, Any]) -> Item:
    listed = tuple(Misprint(**misprint) for misprint in fields.pop("misprints", ()))
    notes = tuple(fields.pop("notes", ()))
    return Item(id=name, citation=citation, misprints=listed, notes=notes, **fields)
