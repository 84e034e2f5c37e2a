"""A comparison of runs on the terminal, in Markdown, in LaTeX and in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.errors import check_known
from classwise.core.format import alpha, distance, fixed, interval, level, p_value, percent, points
from classwise.results.compare import Comparison
from classwise.show import tables
from classwise.show.tables import Names

_MOST = 40  # classes up to which a terminal shows all of them
_BEYOND = "*"  # marks a difference beyond chance
_WORDS = ("run", "worst class", "class")


#: What `columns` may name, and the columns of the table of runs it stands for.
_COLUMNS = {
    "n": ("n",),
    "clean": ("clean",),
    "average": ("average",),
    "worst": ("worst class", "worst", "CI"),
    "cv": ("CV (%²)",),
    "mcd": ("MCD",),
    "rho": ("ρ",),
    "overall": ("overall", "p"),
    "kendall": ("τ",),
}
#: Columns of the table of runs of which one end is better, where they are in the comparison, and which end.
_BEST = {
    "clean": ("clean", "highest"),
    "average": ("average", "highest"),
    "worst": ("worst", "highest"),
    "CV (%²)": ("cv", "lowest"),
    "MCD": ("mcd", "lowest"),
    "ρ": ("rho", "highest"),
}


def markdown(
    comparison: Comparison, by_class: bool = False, names: Names | None = None, columns: Sequence[str] | None = None
) -> str:
    """The table of runs, or of classes, in Markdown. names: other names for runs, classes and columns; columns: of the
    table of runs, such as clean, average, worst and cv."""
    table = _class_text(comparison) if by_class else _chosen(run_text(comparison), columns)
    return tables.markdown(tables.renamed(table, _WORDS, names), _WORDS)


def latex(
    comparison: Comparison, by_class: bool = False, names: Names | None = None, columns: Sequence[str] | None = None
) -> str:
    """The same in LaTeX, the best of each column, or of each class, in bold; the classes with their intervals."""
    if by_class:
        table, means = _class_text(comparison, intervals=True), _class_means(comparison)
        bold = {(row, column + 1) for row, column in tables.best_of_rows(means)}
    else:
        table = _chosen(run_text(comparison), columns)
        bold = {
            (row, place)
            for place, column in enumerate(table.columns)
            if column in _BEST
            for row in tables.best(comparison.runs[_BEST[column][0]].tolist(), _BEST[column][1])
        }
    return tables.latex(tables.renamed(table, _WORDS, names), _WORDS, bold)


def html(comparison: Comparison) -> str:
    """Both tables with the notes and sentences between them."""
    sentences = "".join(f"<p>{escape(text)}</p>" for text in (*comparison.notes, *comparison.sentences()))
    runs = tables.html(run_text(comparison), _WORDS, comparison.title)
    classes = tables.html(_class_text(comparison), _WORDS, _legend(comparison), most=_MOST)
    return f"<div>{runs}{sentences}{classes}</div>"


def show(
    comparison: Comparison,
    console: Console | None = None,
    names: Names | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """The whole comparison on the terminal."""
    console = console or Console()
    console.print(Text(comparison.title))
    runs = tables.renamed(_chosen(run_text(comparison), columns), _WORDS, names)
    for table in tables.terminal(runs, _WORDS, console.width):
        console.print(table)
    for note in comparison.notes:
        console.print(Text(note, "yellow"))
    console.print()
    console.print(Text(_legend(comparison)))
    classes = tables.renamed(_class_text(comparison), _WORDS, names)
    for table in tables.terminal(classes, _WORDS, console.width, most=_MOST):
        console.print(table)
    console.print()
    for sentence in comparison.sentences():
        console.print(Text(sentence))


def _legend(comparison: Comparison) -> str:
    return (
        f"Accuracy in percent, and the difference from {comparison.base} in points; {_BEYOND} beyond chance "
        f"(p < {alpha(comparison.confidence)}, Holm over the classes)"
    )


def run_text(comparison: Comparison) -> pd.DataFrame:
    """The table of runs with its numbers as text."""
    runs, others = comparison.runs, len(comparison.pairs)
    ends = zip(runs["worst_low"], runs["worst_high"], strict=True)
    return pd.DataFrame(
        {
            "run": runs["run"],
            "n": runs["n"].map("{:,}".format),
            "clean": runs["clean"].map(percent),
            "average": runs["average"].map(percent),
            "worst class": runs["worst_class"],
            "worst": runs["worst"].map(percent),
            f"{level(comparison.confidence)} CI": [interval(low, high) for low, high in ends],
            "CV (%²)": [fixed(value, 1) for value in runs["cv"]],
            "MCD": runs["mcd"].map(distance),
            "ρ": [fixed(value, 3, signed=True) for value in runs["rho"]],
            "overall": runs["difference"].map(points),
            f"p (Holm, {others} {'run' if others == 1 else 'runs'})": runs["p_holm"].map(p_value),
            "τ": [fixed(value, 2) for value in runs["kendall"]],
        }
    )


def _chosen(table: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
    """The table of runs with the columns asked for, in that order."""
    if columns is None:
        return table
    check_known("column of runs", _COLUMNS, *columns)
    heads = [head for name in columns for head in _COLUMNS[name]]
    found = [next(column for column in table.columns if _head(column) == head) for head in heads]
    return table[["run", *found]]


def _head(column: str) -> str:
    """A column's name without its level or correction."""
    return "CI" if column.endswith(" CI") else column.partition(" (Holm")[0]


def _of_runs(comparison: Comparison) -> tuple[dict[str, pd.DataFrame], pd.Index[int]]:
    """The classes of each run but the base, and their order: weakest of the base first."""
    own = {run: comparison.classes[comparison.classes["run"] == run].reset_index(drop=True) for run in comparison.pairs}
    first = next(iter(own.values()))
    return own, first["base"].sort_values(kind="stable", na_position="last").index


def _class_means(comparison: Comparison) -> pd.DataFrame:
    own, order = _of_runs(comparison)
    first = next(iter(own.values()))
    return pd.concat([first["base"], *(rows["accuracy"] for rows in own.values())], axis=1).loc[order]


def _class_text(comparison: Comparison, intervals: bool = False) -> pd.DataFrame:
    """A row per class, weakest of the base first; a column per run. intervals: those of the differences too."""
    own, order = _of_runs(comparison)
    first = next(iter(own.values()))
    columns = [first["class"], first["base"].map(percent)]
    for rows in own.values():
        cells = zip(rows["accuracy"], rows["difference"], rows["change"], rows["low"], rows["high"], strict=True)
        shown = [
            f"{percent(a)} {points(d)}{_BEYOND if c else ' '}"
            + (f" [{points(low)}, {points(high)}]" if intervals else "")
            for a, d, c, low, high in cells
        ]
        columns.append(pd.Series(shown))
    return pd.concat(columns, axis=1).loc[order].set_axis(["class", comparison.base, *own], axis=1)
