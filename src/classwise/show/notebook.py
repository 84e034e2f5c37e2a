"""What notebooks show of results: a sentence, tables with bars, notes; everything escaped, nothing fetched or run.

audit                     the last line of a cell shows it
audit.chart()             its usual figure; audit.chart("confusion") another
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import interval, level, percent
from classwise.results.audit_result import Audit
from classwise.results.compare import Comparison
from classwise.results.compare_groups import GroupComparison
from classwise.results.finding import SERIOUS
from classwise.results.leaderboard import Leaderboard
from classwise.results.repair_result import RepairResult
from classwise.results.search_result import SearchResult
from classwise.results.training_result import CONFIDENCE, TrainingResult
from classwise.show import comparison, figures, group_comparison, leaderboard, repair, tables, terminal
from classwise.show.class_table import ERRORS, MANY, Choice, measured, most_errors
from classwise.show.figures.style import Chart, drawing

_GOOD, _FAIR, _POOR = "#2e8b57", "#c9a227", "#c0392b"  # accuracies of at least a half, a quarter, and less
_AROUND = "rgba(128,128,128,.45)"  # the interval on both sides of the value


def html(result: Any) -> str:
    """A result as HTML for a notebook."""
    return _html(result)


@functools.singledispatch
def _html(result: Any) -> str:
    raise TypeError(f"nobody said how a notebook shows a {type(result).__name__}")


def chart(result: Any, name: str | None = None, **options: Any) -> Chart:
    """A figure of a result, or the one that shows it best."""
    if isinstance(result, Audit):
        usual = "curve" if result.has_curve else "forest"
        return figures.chart(name or usual, result, **options)
    if isinstance(result, Comparison):
        given = {"attack": result.attack} if (name or "forest") == "forest" else {}
        return figures.from_runs(name or "forest", result.audits, **{**given, **options})
    if isinstance(result, GroupComparison):
        return figures.from_groups(name or "forest", result, **options)
    if isinstance(result, RepairResult):
        return figures.from_repairs(name or "front", {"repair": result}, **options)
    if isinstance(result, TrainingResult):
        return figures.from_histories(name or "epochs", {"training": result.history}, **options)
    raise UserError(f"there is no figure of a {type(result).__name__}.")


# ---- the parts -----------------------------------------------------------------------------------------------------


def document(*parts: str) -> str:
    """Parts of HTML below one another."""
    return f"<div>{''.join(parts)}</div>"


def paragraphs(sentences: Iterable[str], strong: bool = False) -> str:
    """A paragraph for each sentence."""
    shown = (f"<strong>{escape(text)}</strong>" if strong else escape(text) for text in sentences)
    return "".join(f"<p>{text}</p>" for text in shown)


def bars(rows: pd.DataFrame, value: str, low: str = "low", high: str = "high") -> list[str]:
    """A bar for each row: filled up to the value, and its interval in grey around the end."""
    columns = (rows[name].tolist() if name in rows else [float("nan")] * len(rows) for name in (value, low, high))
    return [_bar(*numbers) for numbers in zip(*columns, strict=True)]


def _bar(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return ""
    colour = _GOOD if value >= 0.5 else _FAIR if value >= 0.25 else _POOR
    known = not (math.isnan(low) or math.isnan(high))
    ends = [round(100 * end, 1) for end in ((low, value, high) if known else (value, value, value))]
    stops = f"{colour} 0 {ends[0]}%,{_AROUND} {ends[0]}% {ends[2]}%,transparent {ends[2]}%"
    mark = f"linear-gradient({colour},{colour}) {ends[1]}% 0/2px 100% no-repeat"
    title = f"{percent(value)} [{interval(low, high)}]" if known else percent(value)
    fill = f"linear-gradient(to right,{stops}) no-repeat padding-box"
    style = f"width:8em;height:.8em;background:{mark},{fill};border:1px solid {_AROUND}"
    return f'<div title="{escape(title)}" style="{style}"></div>'


def classes(table: pd.DataFrame, words: Sequence[str], drawn: Mapping[str, list[str]], caption: str) -> str:
    """A table of classes; of many, those at both ends."""
    return tables.html(table, words, caption, drawn=drawn, most=MANY)


def picture(chart: Chart, about: str) -> str:
    """A chart as an image, which needs no script."""
    coded = base64.b64encode(drawing(chart).encode()).decode()
    return f'<img alt="{escape(about)}" src="data:image/svg+xml;base64,{coded}">'


# ---- the results ---------------------------------------------------------------------------------------------------


@_html.register
def _audit(audit: Audit) -> str:
    rows = Choice().arranged(measured(audit, audit.headline))
    shown = pd.DataFrame(
        {
            "class": rows["class"],
            "images": rows["n"].map("{:,}".format),
            "clean": rows["clean"].map(percent),
            "robust": rows["accuracy"].map(percent),
            f"{level(audit.confidence)} CI": _intervals(rows),
            "": "",
            ERRORS: [" ".join(most_errors(row)).strip() for _, row in rows.iterrows()],
        }
    )
    table = classes(
        shown, ("class", "", ERRORS), {"": bars(rows, "accuracy")}, f"Robustness by class under {audit.headline}"
    )
    serious = [f"{one.severity}: {one.what} {one.remedy}" for one in audit.findings if one.severity in SERIOUS]
    return document(paragraphs([audit.verdict().sentence], strong=True), table, paragraphs(serious))


@_html.register
def _comparison(made: Comparison) -> str:
    return comparison.html(made)


@_html.register
def _groups(made: GroupComparison) -> str:
    return group_comparison.html(made)


@_html.register
def _repair(result: RepairResult) -> str:
    rows = Choice().arranged(result.by_class(), columns=repair.SORTED_BY)
    shown = repair.class_text(rows, level(result.confidence))
    shown.insert(6, "", "")
    drawn = {"": bars(rows, "after", "after_low", "after_high")}
    first, *others = result.sentences()
    return document(
        paragraphs([first], strong=True),
        classes(shown, repair.WORDS, drawn, "Robust accuracy by class on the judging images"),
        paragraphs([*others, repair.attacker(result), *result.remarks]),
    )


@_html.register
def _search(found: SearchResult) -> str:
    rows = terminal.searched(found, Choice())
    shown = terminal.search_text(found, rows).assign(**{" ": ""})
    return document(
        paragraphs([f"{found}."], strong=True),
        classes(shown, terminal.SEARCH_WORDS, {" ": bars(rows, "estimate")}, "Robust accuracy: estimates and bounds"),
    )


@_html.register
def _training(result: TrainingResult) -> str:
    rows = result.by_class().sort_values("robust", kind="stable", na_position="last")
    shown = pd.DataFrame(
        {
            "class": rows["class"],
            "clean": rows["clean"].map(percent),
            "robust": rows["robust"].map(percent),
            f"{level(CONFIDENCE)} CI": _intervals(rows),
            "": "",
        }
    )
    names, worst = result.worst()
    epochs = len(result.history)
    selected = "" if result.selected is None else f", of which {result.selected} was selected"
    told = [f"A training of {epochs} epochs{selected}."]
    if names:
        told.append(f"On held-out images the worst class is {', '.join(names)}: {percent(worst.value)} robust.")
    table = classes(shown, ("class", ""), {"": bars(rows, "robust")}, "Accuracy by class on held-out images")
    return document(paragraphs([" ".join(told)], strong=True), table if names else "", paragraphs(result.remarks))


@_html.register
def _leaderboard(board: Leaderboard) -> str:
    made = []
    for one in board.divisions:
        text = leaderboard.division_text(one, board.confidence)
        place = list(text.columns).index(f"{level(board.confidence)} CI") + 1
        text.insert(place, "", "")
        drawn = {"": bars(one.rows, "worst", "worst_low", "worst_high")}
        made += [tables.html(text, leaderboard.WORDS, one.title, drawn=drawn), paragraphs([one.sentence()])]
    return document(*made, paragraphs([*board.notes, leaderboard.legend(board)]))


def study(
    frames: Mapping[str, tuple[pd.DataFrame, Sequence[str]]], pictures: Mapping[str, Chart], notes: Sequence[str]
) -> str:
    """The tables of a study, with their columns of words, its figures and its notes."""
    shown = [tables.html(table, words, name, most=MANY) for name, (table, words) in frames.items()]
    return document(*shown, *(picture(one, name) for name, one in pictures.items()), paragraphs(notes))


def _intervals(rows: pd.DataFrame) -> list[str]:
    return [interval(*ends) for ends in zip(rows["low"], rows["high"], strict=True)]
