"""`leaderboard`: audits as a board, models by their worst class, with the papers' printed numbers beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from classwise.core.arguments import checked
from classwise.core.records import CLEAN
from classwise.published.printed_worst import COLUMNS, beside
from classwise.results import leaderboard as boards
from classwise.results import submissions
from classwise.results.audit_result import Audit
from classwise.results.leaderboard import Leaderboard


@checked
def leaderboard(
    runs: Mapping[str, Audit] | Sequence[str | Path],
    attack: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    printed: bool = True,
) -> Leaderboard:
    """Rank audits by their worst class; only those that are comparable are ranked together.

    runs: run folders of audits, patterns such as ``runs/*``, folders of runs (a zoo), or audits by name.
    attack: the rows that decide, such as "pgd-20"; by default each audit's headline.
    common: rank audits that differ only in their images together, on the images that all of them saw.
    confidence: level of all intervals, including those of the ranks.
    printed: whether to list the worst-class accuracies that papers print beside the divisions they belong to.
    """
    found = (
        [submissions.submission(name, audit) for name, audit in runs.items()]
        if isinstance(runs, Mapping)
        else submissions.read(runs)
    )
    board = boards.of(found, attack, common, confidence)
    return dataclasses.replace(board, printed=_printed(board)) if printed else board


def _printed(board: Leaderboard) -> pd.DataFrame:
    """The printed rows beside each division, with its number."""
    found = []
    for number, one in enumerate(board.divisions, 1):
        if one.attack == CLEAN:
            continue
        rows = beside(one.data, int(one.classes.iloc[0].notna().sum()), one.norm, one.eps, one.kinds)
        names = one.classes.columns
        known = [None if pd.isna(place) else str(names[int(place)]) for place in rows["worst_class"]]
        named = pd.Series(known, index=rows.index, dtype=object)
        found.append(rows.assign(division=number, worst_class=named))
    filled = [rows for rows in found if len(rows)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*COLUMNS, "division"])
