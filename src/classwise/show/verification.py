"""A verified submission on the terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.format import percent
from classwise.results.verification import KINDS, Verification
from classwise.show import tables

_MOST = 40  # classes up to which a terminal shows all of them


def show(result: Verification, console: Console | None = None) -> None:
    """The classes, then what was found."""
    console = console or Console()
    if len(result.rows):
        for table in tables.terminal(_class_text(result), ("class",), console.width, most=_MOST):
            console.print(table)
        console.print()
    first, *rest = result.sentences()
    console.print(Text(first, "green" if result.passed else "bold red"))
    for sentence in rest:
        console.print(Text(sentence))
    console.print(Text(f"Images drawn by --seed {result.seed}.", "dim"))


def _class_text(result: Verification) -> pd.DataFrame:
    """The classes with their numbers as text; outcomes that no image has are left out."""
    rows, counts = result.by_class(), result.counts
    kinds = [kind for kind in KINDS[1:] if counts[kind]]
    shares = {"submitted": rows["robust"].map(percent), "again": rows["robust_again"].map(percent)}
    return pd.DataFrame({"class": rows["class"], "n": rows["n"], **shares, **{kind: rows[kind] for kind in kinds}})
