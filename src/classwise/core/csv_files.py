"""Comma-separated values that a spreadsheet can open without running what is in them, and text that XML can hold."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from classwise.core.storage import atomic_write_text

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: The same, and halves of characters, as JSON and the expressions of charts write them.
_NOT_XML_ESCAPED = re.compile(
    r"\\u(?:00(?:0[0-8bcef]|1[0-9a-f])|fff[ef]|d[89ab][0-9a-f]{2}(?!\\ud[c-f]))|(?<!\\ud[89ab]..)\\ud[c-f][0-9a-f]{2}"
)
_FORMULA = re.compile(r"'*[=+\-@\t\r].", re.DOTALL)
_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)(e[+-]?\d+)?%?", re.IGNORECASE)


def csv_text(table: pd.DataFrame, index: bool = False) -> str:
    """Comma-separated values of which no text is a formula to a spreadsheet: ``=SUM(A1)`` becomes ``'=SUM(A1)``.

    Numbers stay numbers. `read_csv` gives every text back as it was.
    """
    made = _each_text(table, lambda text: f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text)
    text = made.to_csv(index=index)
    # pandas leaves a carriage return unquoted, which to others ends the row.
    return made.to_csv(index=index, quoting=csv.QUOTE_NONNUMERIC) if "\r" in text else text


def write_csv(path: Path, table: pd.DataFrame, index: bool = False) -> None:
    """Write a table as `csv_text`, whole or not at all."""
    atomic_write_text(path, csv_text(table, index))


def read_csv(path: str | Path, **options: Any) -> pd.DataFrame:
    """A table that `csv_text` has written, by pandas' options."""
    return _each_text(
        pd.read_csv(path, **options), lambda text: text[1:] if text[:1] == "'" and _FORMULA.match(text) else text
    )


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with every text in it changed, also those that head its rows and columns."""

    def one(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    made = table.copy(deep=False)
    for place, (_, column) in enumerate(table.items()):
        if not pd.api.types.is_numeric_dtype(column):
            made.isetitem(place, pd.Series([one(value) for value in column], dtype=object).array)
    made.columns, made.index = made.columns.map(one), made.index.map(one)
    return made


def visible(value: Any) -> Any:
    """A text, or all texts in nested values, as XML and the renderer of charts take it: what is no character to them,
    such as a control character, becomes �."""
    if isinstance(value, str):
        return _NOT_XML_ESCAPED.sub("�", _NOT_XML.sub("�", value))
    if isinstance(value, dict):
        return {visible(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, (list, tuple)) else value
