"""The printed numbers: tables as CSV files with the digits of the paper, and a list of the numbers in the text.

All tables use the same column names: classes by number, ``cv``, ``mcd``, ``rho``, ``change_…`` for a printed change.
"""

from __future__ import annotations

import functools
import re

import pandas as pd

from classwise.core.errors import UserError
from classwise.published.index import HOME, Item, item, items

#: Columns that name a row instead of measuring something.
LABELS = ("dataset", "superclass", "class", "defense", "attack", "method", "test_set", "inv_temperature", "eta")
_WORDS = LABELS[:-2]
_KINDS = {"table": "Table", "figure": "Figure", "theorem": "Theorem", "section": "Section"}


def names() -> tuple[str, ...]:
    """The ids of the tables whose numbers are here."""
    return tuple(entry.id for entry in items() if entry.csv)


def table(name: str) -> pd.DataFrame:
    """A table as printed, one row per printed row; a cell left empty in print is NaN."""
    cells = printed(name).copy()
    for column in cells.columns.difference([*_WORDS]):
        cells[column] = pd.to_numeric(cells[column])
    return cells


def source(name: str) -> str:
    """Where the numbers of a table or figure are from, and what its columns are."""
    entry = item(name)
    line = f"{entry.citation}, {_place(entry)}."
    return f"{line} Columns: {entry.columns}." if entry.columns else line


def statements(name: str | None = None) -> pd.DataFrame:
    """The numbers printed in the text or in a figure, of one item or of all.

    Columns: item, quantity, value, unit, place (the section, or ``figure`` where it is read off the figure).
    """
    rows = printed_statements()
    if name is not None:
        rows = rows[rows["item"] == item(name).id].reset_index(drop=True)
    return rows.assign(value=pd.to_numeric(rows["value"]))


@functools.cache
def printed(name: str) -> pd.DataFrame:
    """A table as text, with every printed digit. Cached: do not modify it."""
    file = item(name).csv
    if file is None:
        raise UserError(
            f"{name} prints no table; for the numbers in the text about it see published.statements({name!r}). "
            f"Tables: {', '.join(names())}."
        )
    return _read(file)


@functools.cache
def printed_statements() -> pd.DataFrame:
    """The statements as text. Cached: do not modify them."""
    return _read("statements.csv")


def _read(file: str) -> pd.DataFrame:
    return pd.read_csv(HOME / file, dtype=str, keep_default_na=False, encoding="utf-8")


def _place(entry: Item) -> str:
    kind, number = re.fullmatch(r"([a-z]+)(.*)", entry.place).groups()  # type: ignore[union-attr]
    return f"{_KINDS[kind]} {number}"
