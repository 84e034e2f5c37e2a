"""The tables that figures are drawn from: their columns, checked before anything is drawn, and those that studies left.

    runs/temperature/data/temperature.csv        the columns that figures.temperature.draw asks for

Where a study draws a figure for each of several models, the column model tells which rows are whose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from classwise.core.csv_files import read_csv
from classwise.core.errors import UserError, check_known
from classwise.core.run_folder import StudyFolder, kind_of
from classwise.results.audit_result import unique_names

#: The tables of one study, by their names.
Tables: TypeAlias = Mapping[str, pd.DataFrame]

#: Columns that hold names, which may look like numbers or like nothing ("7", "null").
_NAMES = ("attack", "background", "caption", "class", "column", "corruption", "group", "image", "kind", "model",
          "predicted", "row", "setting", "true", "true_class", "variant")  # fmt: skip


def tidy(
    data: pd.DataFrame,
    figure: str,
    names: Sequence[str] = (),
    numbers: Sequence[str] = (),
    optional: Sequence[str] = (),
    others: Sequence[str] = (),
) -> pd.DataFrame:
    """A copy with just the columns of a figure, names as text; an error that says what is wrong with the table.

    `optional` columns are numbers, kept if the table has all of them; `others` are neither names nor numbers.
    """
    needed = (*names, *numbers, *others)
    if missing := [column for column in needed if column not in data]:
        raise UserError(
            f"{figure} draws a table with the columns {', '.join(needed)}; {', '.join(missing)} missing. "
            f"The table has: {', '.join(map(str, data.columns)) or 'none'}."
        )
    if data.empty:
        raise UserError(f"{figure} got a table without rows; there is nothing to draw.")
    kept = optional if all(column in data for column in optional) else ()
    frame = data[[*needed, *kept]].reset_index(drop=True)
    for column in (*numbers, *kept):
        if not pd.api.types.is_numeric_dtype(frame[column]):
            raise UserError(
                f"the column {column} of {figure} holds numbers; got {frame[column].iloc[0]!r}. Convert it first."
            )
    return frame.astype(dict.fromkeys(names, str))


def read(folders: Sequence[Path]) -> dict[str, Tables]:
    """The tables of each study, by name."""
    for folder in folders:
        if kind_of(folder) != "study":
            raise UserError(f"{folder} is no folder of a finished study (it has no study.md).")
    return {name: _read(folder) for name, folder in zip(unique_names(list(folders)), folders, strict=True)}


def _read(folder: Path) -> Tables:
    found = {}
    for path in StudyFolder(folder).figure_data():
        try:
            found[path.stem] = read_csv(
                path, dtype=dict.fromkeys(_NAMES, str), keep_default_na=False, na_values=dict.fromkeys(_NUMBERS, "")
            )
        except (ValueError, OSError) as error:
            raise UserError(f"cannot read {path}: {error}. Do the study again: finished jobs are kept.") from error
    return found


_NUMBERS = ("accuracy", "cosine", "high", "images", "inv_temperature", "low", "norm", "probability", "severity",
            "share", "step", "value", "x", "y")  # fmt: skip


def table_of(studies: Mapping[str, Tables], figure: str) -> dict[str, pd.DataFrame]:
    """The table of a figure in each study that has one; an error where none has."""
    found = {name: tables[figure] for name, tables in studies.items() if figure in tables}
    if not found:
        known = {table for tables in studies.values() for table in tables}
        raise UserError(
            f"{', '.join(studies)} left no table of {figure}; there is {', '.join(sorted(known)) or 'none'}. A study "
            "of an earlier version leaves them when it is done again, which keeps its finished jobs."
        )
    return found


def by_model(studies: Mapping[str, Tables], figure: str, model: str | None = None) -> dict[str, pd.DataFrame]:
    """The rows of each model, by its name, with the study's before it where there are several studies.

    model: only this one.
    """
    parts = {
        (study, str(name)): own.drop(columns="model").reset_index(drop=True)
        for study, frame in table_of(studies, figure).items()
        for name, own in frame.groupby("model", sort=False)
    }
    check_known("model", {name for _, name in parts}, model)
    several = len(studies) > 1
    return {
        f"{study}: {name}" if several else name: own
        for (study, name), own in parts.items()
        if model in (None, name)
    }  # fmt: skip
