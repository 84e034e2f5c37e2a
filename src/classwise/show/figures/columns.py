"""The columns of a figure that is drawn from a table: just these, checked before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from classwise.core.errors import UserError


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
