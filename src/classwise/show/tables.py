"""Tables of text for papers, pages and terminals: Markdown, LaTeX, HTML or Rich, with everything escaped.

A class may have any name: `<script>`, `R&D_1` and `a|b` come out unchanged. A table is a frame of strings; the columns
`words` are aligned left, the others hold numbers and are aligned right. What is not defined, None or NaN, is a dash.
"""

from __future__ import annotations

import html as _html
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from classwise.core.format import UNKNOWN

#: Cells of a table by row and column; other names for columns, runs, groups and classes.
Cells: TypeAlias = AbstractSet[tuple[int, int]]
Names: TypeAlias = Mapping[str, str]

_GAP = 2  # blanks between two columns on a terminal
_LONGEST = 30  # of a name in the first column before it is broken into lines
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "²": "$^2$",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "±": r"$\pm$",
}


def markdown(table: pd.DataFrame, words: Collection[str] = ()) -> str:
    """A table as GitHub and Pandoc read it."""
    rule = [":--" if column in words else "--:" for column in table.columns]
    lines = [*_lines(table, _in_markdown)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (lines[0], rule, *lines[1:]))


def latex(table: pd.DataFrame, words: Collection[str] = (), bold: Cells = frozenset()) -> str:
    """A tabular with the rules of the package booktabs. bold: the cells that are, as row and column."""
    shape = "".join("l" if column in words else "r" for column in table.columns)
    lines = [*_lines(table, _in_latex)]
    for row, column in bold:
        lines[row + 1][column] = rf"\textbf{{{lines[row + 1][column]}}}"
    head, *body = (" & ".join(cells) + r" \\" for cells in lines)
    inner = "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
    return f"\\begin{{tabular}}{{{shape}}}\n{inner}\n\\end{{tabular}}\n"


def html(
    table: pd.DataFrame,
    words: Collection[str] = (),
    caption: str = "",
    drawn: Mapping[str, Sequence[str]] | None = None,
    most: int | None = None,
) -> str:
    """A plain table element; its first column heads the rows.

    drawn: columns whose cells are HTML already, such as bars. most: of a longer table only so many rows are shown, from
    both ends.
    """

    def cells(texts: list[str], tag: str, scope: str) -> str:
        made = []
        for place, (column, text) in enumerate(zip(table.columns, texts, strict=True)):
            kind, named = ("th", f' scope="{scope}"') if tag == "th" or place == 0 else (tag, "")
            align = "left" if column in words else "right"
            made.append(f'<{kind}{named} style="text-align:{align}">{text}</{kind}>')
        return f"<tr>{''.join(made)}</tr>"

    head, *body = _lines(table, _html.escape)
    for column, shown in (drawn or {}).items():
        place = list(table.columns).index(column)
        for line, cell in zip(body, shown, strict=True):
            line[place] = cell
    title = f"<caption>{_html.escape(caption)}</caption>" if caption else ""
    made = [cells(line, "td", "row") for line in body]
    if most is not None and len(made) > most:
        half, left_out = most // 2, len(made) - 2 * (most // 2)
        made[half:-half] = [f'<tr><td colspan="{len(head)}">… {left_out:,} more</td></tr>']
    rows = "".join(made)
    return f"<table>{title}<thead>{cells(head, 'th', 'col')}</thead><tbody>{rows}</tbody></table>"


def terminal(
    table: pd.DataFrame,
    words: Collection[str] = (),
    width: int = 80,
    most: int | None = None,
    longest: int = _LONGEST,
) -> Iterator[Table]:
    """The table, or where it is wider than the terminal several, each with the first column and some of the others.

    most: of a longer table only so many rows are shown, from both ends. longest: a name in the first column that is
    longer is broken into lines.
    """
    rows = table if most is None or len(table) <= most else pd.concat([table.head(most // 2), table.tail(most // 2)])
    texts = list(_lines(rows, str))
    widths = [max(cell_len(line[column]) for line in texts) for column in range(len(table.columns))]
    left_out = f"… {len(table) - len(rows)} more" if len(rows) < len(table) else ""
    widths[0] = max(min(widths[0], longest), len(left_out))
    for chosen in _pieces(widths, width):
        piece = Table(box=None, pad_edge=False)
        for column in chosen:
            left = table.columns[column] in words
            piece.add_column(
                Text(texts[0][column]),
                justify="left" if left else "right",
                no_wrap=column > 0,
                overflow="fold",
                max_width=widths[column],
            )
        for place, line in enumerate(texts[1:]):
            if left_out and place == len(rows) // 2:
                piece.add_row(left_out, style="dim")
            piece.add_row(*(Text(line[column]) for column in chosen))
        yield piece


def renamed(table: pd.DataFrame, words: Collection[str], names: Names | None) -> pd.DataFrame:
    """The table with other names for its columns, and for what stands in its columns of words."""
    if not names:
        return table
    columns = [
        table.iloc[:, place].map(lambda cell: names.get(cell, cell)) if column in words else table.iloc[:, place]
        for place, column in enumerate(table.columns)
    ]
    heads = [column if column in words else names.get(column, column) for column in table.columns]
    return pd.concat(columns, axis=1).set_axis(heads, axis=1)


def best(values: Sequence[float], end: str = "highest") -> set[int]:
    """The places of the best of these numbers: all that tie for it, none if no two can be compared."""
    known = [value for value in values if not pd.isna(value)]
    if len(known) < 2:
        return set()
    wanted = max(known) if end == "highest" else min(known)
    return {place for place, value in enumerate(values) if value == wanted}


def best_of_rows(values: pd.DataFrame) -> set[tuple[int, int]]:
    """The cells that are the highest of their row."""
    return {(row, column) for row, cells in enumerate(values.to_numpy().tolist()) for column in best(cells)}


def _pieces(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns in groups that fit into the width, each beginning with the first column."""
    chosen = [0]
    for column in range(1, len(widths)):
        if len(chosen) > 1 and sum(widths[c] + _GAP for c in chosen) + widths[column] > room:
            yield chosen
            chosen = [0]
        chosen.append(column)
    yield chosen


def _lines(table: pd.DataFrame, escape: Callable[[str], str]) -> Iterator[list[str]]:
    yield [escape(str(column)) for column in table.columns]
    for row in table.itertuples(index=False):
        yield [escape(UNKNOWN if pd.isna(cell) else str(cell)) for cell in row]


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|~&$])", r"\\\1", re.sub(r"\s+", " ", text))


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in re.sub(r"\s+", " ", text))


def printed(frame: pd.DataFrame) -> pd.DataFrame:
    """A table as text: numbers to three digits or so, missing values left empty, yes and no."""
    return frame.map(_cell)


def words(frame: pd.DataFrame) -> list[str]:
    """The columns that do not hold numbers."""
    return [str(column) for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    if 0 < abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
