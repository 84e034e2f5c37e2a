"""A comparison of runs on the terminal, in Markdown, in LaTeX and in HTML."""

from __future__ import annotations

from html import escape

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.format import alpha, distance, fixed, interval, level, p_value, percent, points
from classwise.results.compare import Comparison
from classwise.show import tables

_MOST = 40  # classes up to which a terminal shows all of them
_BEYOND = "*"  # marks a difference beyond chance
_WORDS = ("run", "worst class", "class")


def markdown(comparison: Comparison, by_class: bool = False) -> str:
    """The table of runs, or of classes, in Markdown."""
    return tables.markdown(_class_text(comparison) if by_class else run_text(comparison), _WORDS)


def latex(comparison: Comparison, by_class: bool = False) -> str:
    """The table of runs, or of classes, in LaTeX."""
    return tables.latex(_class_text(comparison) if by_class else run_text(comparison), _WORDS)


def html(comparison: Comparison) -> str:
    """Both tables with the notes and sentences between them."""
    sentences = "".join(f"<p>{escape(text)}</p>" for text in (*comparison.notes, *comparison.sentences()))
    runs = tables.html(run_text(comparison), _WORDS, comparison.title)
    return f"<div>{runs}{sentences}{tables.html(_class_text(comparison), _WORDS, _legend(comparison))}</div>"


def show(comparison: Comparison, console: Console | None = None) -> None:
    """The whole comparison on the terminal."""
    console = console or Console()
    console.print(Text(comparison.title))
    for table in tables.terminal(run_text(comparison), _WORDS, console.width):
        console.print(table)
    for note in comparison.notes:
        console.print(Text(note, "yellow"))
    console.print()
    console.print(Text(_legend(comparison)))
    for table in tables.terminal(_class_text(comparison), _WORDS, console.width, most=_MOST):
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
    runs = comparison.runs
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
            "p": runs["p_holm"].map(p_value),
            "τ": [fixed(value, 2) for value in runs["kendall"]],
        }
    )


def _class_text(comparison: Comparison) -> pd.DataFrame:
    """A row per class, weakest of the base first; a column per run."""
    own = {run: comparison.classes[comparison.classes["run"] == run].reset_index(drop=True) for run in comparison.pairs}
    first = next(iter(own.values()))
    columns = [first["class"], first["base"].map(percent)]
    for rows in own.values():
        cells = zip(rows["accuracy"], rows["difference"], rows["change"], strict=True)
        columns.append(pd.Series([f"{percent(a)} {points(d)}{_BEYOND if c else ' '}" for a, d, c in cells]))
    order = first["base"].sort_values(kind="stable", na_position="last").index
    table = pd.concat(columns, axis=1).loc[order]
    return table.set_axis(["class", comparison.base, *own], axis=1)
