"""The page of a leaderboard: a table for each division, sorted and filtered by a script, each row with its report.

board/index.html            the page; it opens from disk
      board.csv, .json, .md the same numbers
      reports/NAME.html     the report of each model, which its row leads to
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.csv_files import visible
from classwise.core.format import distance, fixed, interval, level, listed, p_equals, percent
from classwise.core.records import Array
from classwise.core.storage import atomic_write_text, safe_name
from classwise.results.division import SORTS, Division
from classwise.results.leaderboard import Leaderboard
from classwise.results.submissions import Submission
from classwise.show.leaderboard import cost_text, family_text, markdown, rank_text
from classwise.show.page import document, glossary, page

PAGE, REPORTS = "index.html", "reports"
_SCRIPTS = ("dom.js", "theme.js", "board.js")
_NAMED = 20  # classes that the text of a strip names; of more only both ends
_ENDS = 5


@dataclass(frozen=True)
class Column:
    """A column that rows are sorted by. kind: where it is shown, wide or medium screens only; empty: everywhere."""

    key: str
    label: str
    kind: str = ""
    about: str = ""

    @property
    def down(self) -> bool:
        """Whether the highest value is the best one."""
        return SORTS.get(self.key, False)


COLUMNS = (
    Column("rank", "rank", about="the ranks it may have, simultaneous over all models"),
    Column("name", "model"),
    Column("worst", "worst class"),
    Column("average", "average", "medium"),
    Column("clean", "clean", "medium"),
    Column("cv", "CV", "wide", "variance of the class accuracies, in percent²"),
    Column("mcd", "MCD", "wide", "best minus worst class, in points"),
    Column("bottom_tenth", "bottom 10%", "wide", "mean of the lowest tenth of the classes"),
    Column("behind", "behind", "wide", "worst class, in points behind the first; p of the first being better"),
    Column("training_seconds", "training", "wide", "time that the training took, as its history says"),
)


def build(
    board: Leaderboard,
    folder: Path,
    title: str = "Leaderboard",
    command: Sequence[str] = (),
    reports: bool = True,
    image_bytes: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the page, the numbers and the reports into a folder, and return the page.

    command: the words that made it, shown at its end. reports: whether each model that has a run folder gets one.
    image_bytes: room for adversarial images in each report. say: told of each report before it is made.
    """
    written = report_names(board) if reports else {}
    for name, (one, file) in written.items():
        say(f"report of {name} …")
        folders = [place for place in (one.audit.folder, one.training) if place is not None]
        names = [name, *([f"{name} training"] if one.training else [])]
        page.build(folders, folder / file, names, f"Robustness by class: {name}", image_bytes=image_bytes)
    links = {name: file for name, (_, file) in written.items()}
    atomic_write_text(folder / "board.csv", board.to_csv())
    atomic_write_text(folder / "board.json", board.to_json())
    atomic_write_text(folder / "board.md", markdown(board))
    atomic_write_text(folder / PAGE, visible(render(board, title, shlex.join(command), links)))
    return folder / PAGE


def report_names(board: Leaderboard) -> dict[str, tuple[Submission, str]]:
    """The models that have a run folder, and the file of each one's report, relative to the page."""
    found: dict[str, tuple[Submission, str]] = {}
    taken: set[str] = set()
    for one in (one for division in board.divisions for one in division.submissions if one.audit.folder is not None):
        stem = safe_name(one.name)
        while stem.lower() in taken:  # a/b and a_b, or A and a on some systems
            stem += "_"
        taken.add(stem.lower())
        found[one.name] = (one, f"{REPORTS}/{stem}.html")
    return found


def render(board: Leaderboard, title: str, command: str, links: Mapping[str, str]) -> str:
    """The page as text. links: the report of each model that has one."""
    divisions = [_division(number, one, board, links) for number, one in enumerate(board.divisions, 1)]
    payload = {
        "columns": [{"key": column.key, "label": column.label, "down": column.down} for column in COLUMNS],
        "divisions": [{"classes": one.pop("ordered"), "strips": one.pop("strips")} for one in divisions],
    }
    networks = {row["network"] for one in divisions for row in one["rows"]} - {""}
    choices = {
        "data": ("Data set", sorted({one.data for one in board.divisions})),
        "threat": ("Threat", sorted({one.threat for one in board.divisions})),
        "attack": ("Attack", sorted({" + ".join(one.kinds) for one in board.divisions})),
        "network": ("Network", sorted(networks)),
    }
    return document.render(
        "board.html",
        _SCRIPTS,
        payload,
        ["board.css"],
        title=title,
        sections=[("models", "Models"), ("about", "About this board"), ("glossary", "Glossary")],
        scope=_scope(board),
        terms=glossary.of({"board"}),
        verdict=_verdict(board),
        numbers=_figures(board),
        columns=COLUMNS,
        choices=choices,
        divisions=divisions,
        has_printed=not board.printed.empty,
        level=level(board.confidence),
        notes=board.notes,
        command=command,
    )


def _verdict(board: Leaderboard) -> str:
    if len(board.divisions) == 1:
        return board.divisions[0].sentence()
    models = sum(len(one.rows) for one in board.divisions)
    return f"{models} models in {len(board.divisions)} divisions. Only models of one division are comparable."


def _scope(board: Leaderboard) -> list[tuple[str, str]]:
    """What all divisions are about, as a report says it: data, threats and attacks."""
    parts = {
        "data": [one.data for one in board.divisions],
        "threat": [one.threat for one in board.divisions],
        "attacks": [" + ".join(one.kinds) for one in board.divisions],
    }
    return [(key, listed(list(dict.fromkeys(values)), 4)) for key, values in parts.items()]


def _figures(board: Leaderboard) -> list[tuple[str, str, str]]:
    """The numbers at the top: each number, what it is, and a remark."""
    best = max(board.divisions, key=lambda one: len(one.rows))
    row = best.rows.iloc[0]
    ends = f"{level(board.confidence)} CI {interval(row['worst_low'], row['worst_high'])}"
    remark = ends if len(board.divisions) == 1 else f"{ends}; {best.title}"
    return [
        (percent(row["worst"]), f"worst class of {row['name']}: {row['worst_class']}", remark),
        (percent(row["average"]), f"average of {row['name']}", "the number that other boards rank by"),
        (str(sum(len(one.rows) for one in board.divisions)), "models", f"{len(board.printed):,} printed in papers"),
    ]


def _division(number: int, one: Division, board: Leaderboard, links: Mapping[str, str]) -> dict[str, Any]:
    """A division as the template shows it."""
    order = np.argsort(np.nan_to_num(one.classes.to_numpy(dtype=float).mean(axis=0), nan=2.0), kind="stable")
    names = [str(one.classes.columns[place]) for place in order]
    values = [one.classes.to_numpy(dtype=float)[place][order] for place in range(len(one.rows))]
    rows = [_row(row, own, names, links) for (_, row), own in zip(one.rows.iterrows(), values, strict=True)]
    beside = board.printed_beside(number)
    for _, row in beside.iterrows():
        own = None if row["classes"] is None else np.asarray(row["classes"], dtype=float)[order]
        rows.append(_printed(row, own, names))
        values.append(np.full(0, np.nan) if own is None else own)
    rows = [{**row, "place": place} for place, row in enumerate(rows)]
    return {
        "id": f"division-{number}",
        "title": one.title,
        "data": one.data,
        "threat": one.threat,
        "attack": " + ".join(one.kinds),
        "sentence": one.sentence(),
        "rows": rows,
        "many": bool(one.rows["bottom_tenth"].notna().any()),
        "families": [{str(key): value for key, value in row.items()} for row in family_text(one).to_dict("records")],
        "caption": f"{len(one.rows)} comparable models" + (f", {len(beside)} rows as printed" if len(beside) else ""),
        "ordered": names,
        "strips": [[None if math.isnan(value) else round(float(value), 4) for value in own] for own in values],
    }


def _row(row: pd.Series[Any], values: Array, names: Sequence[str], links: Mapping[str, str]) -> dict[str, Any]:
    about = [row["method"], row["architecture"], "" if pd.isna(row["seed"]) else f"seed {row['seed']:.0f}"]
    p = "" if pd.isna(row["p_behind"]) else p_equals(row["p_behind"])
    texts = {
        "rank": rank_text(row["rank_low"], row["rank_high"]),
        "worst": percent(row["worst"]),
        "average": percent(row["average"]),
        "clean": percent(row["clean"]),
        "cv": fixed(row["cv"], 1),
        "mcd": distance(row["mcd"]),
        "bottom_tenth": percent(row["bottom_tenth"]),
        "behind": distance(row["behind"]),
        "training_seconds": cost_text(row["training_seconds"]),
    }
    return {
        "name": row["name"],
        "link": links.get(row["name"], ""),
        "about": " · ".join(text for text in about if text),
        "network": row["architecture"],
        "printed": False,
        "first": row["rank_low"] == 1,
        "texts": texts,
        "values": {key: _value(row[key]) for key in texts} | {"name": row["name"], "rank": f"{row['rank']}"},
        "worst_class": row["worst_class"],
        "interval": interval(row["worst_low"], row["worst_high"]),
        "bar": _bar(row["worst"], row["worst_low"], row["worst_high"]),
        "p": p,
        "epochs": "" if pd.isna(row["epochs"]) else f"{row['epochs']:.0f} epochs",
        "strip": _strip(values, names),
    }


def _printed(row: pd.Series[Any], values: Array | None, names: Sequence[str]) -> dict[str, Any]:
    """A row of a paper: no rank, no interval, no report."""
    numbers = {key: row[key] for key in ("worst", "average", "clean", "cv", "mcd")}
    texts = {key: percent(numbers[key]) for key in ("worst", "average", "clean")}
    texts |= {"cv": fixed(row["cv"], 1), "mcd": distance(row["mcd"])}
    rest = ("rank", "bottom_tenth", "behind", "training_seconds")
    network = "" if row["network"] == "not stated" else row["network"]
    return {
        "name": row["method"],
        "link": "",
        "about": " · ".join(text for text in (network, row["attack"], row["item"]) if text),
        "network": network,
        "printed": True,
        "first": False,
        "texts": texts | dict.fromkeys(rest, "–"),
        "values": {key: _value(value) for key, value in numbers.items()}
        | {"name": row["method"], **dict.fromkeys(rest, "")},
        "worst_class": "" if pd.isna(row["worst_class"]) else row["worst_class"],
        "interval": "",
        "bar": _bar(row["worst"]),
        "p": "",
        "epochs": "",
        "strip": None if values is None else _strip(values, names),
    }


def _value(value: Any) -> str:
    """A number to sort by, with all its digits; empty where it is not known."""
    return "" if pd.isna(value) else repr(float(value))


def _bar(value: float, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    """Width of the bar, and place and length of its whisker, in percent."""
    if low is None or high is None:
        return {"width": round(100 * value, 2), "low": None, "span": None}
    return {"width": round(100 * value, 2), "low": round(100 * low, 2), "span": round(100 * (high - low), 2)}


def _strip(values: Array, names: Sequence[str]) -> dict[str, Any]:
    """A bar for each class, the lowest marked, and the same in words."""
    known = [place for place, value in enumerate(values) if value == value]
    lowest = min((values[place] for place in known), default=math.nan)
    ranked = sorted(known, key=lambda place: float(values[place]))
    chosen = ranked if len(ranked) <= _NAMED else [*ranked[:_ENDS], *ranked[-_ENDS:]]
    texts = [f"{names[place]} {percent(values[place])}" for place in chosen]
    more = f"; {len(ranked) - len(chosen):,} classes in between" if len(ranked) > len(chosen) else ""
    return {
        "size": len(values),
        "bars": [
            {"x": place, "height": round(float(values[place]), 4), "lowest": values[place] == lowest} for place in known
        ],
        "text": f"Accuracy by class: {', '.join(texts)}{more}.",
    }
