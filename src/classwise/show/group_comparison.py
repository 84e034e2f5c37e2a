"""A comparison of groups of runs over seeds, on the terminal, in Markdown, in LaTeX and in HTML."""

from __future__ import annotations

from html import escape

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.format import alpha, interval, level, p_value, percent, points
from classwise.metrics.metric import Shown
from classwise.results.compare_groups import GroupComparison, decision
from classwise.show import tables
from classwise.show.tables import Cells, Names
from classwise.stats.intervals import POWER, check_confidence
from classwise.stats.over_seeds import beforehand

_MOST = 40  # classes up to which a terminal shows all of them
_BEYOND = "*"  # marks a difference beyond chance
_PLANNED = (3, 5, 10)  # seeds of a plan
WORDS = ("group", "metric", "verdict", "class")


def markdown(comparison: GroupComparison, by_class: bool = False, names: Names | None = None) -> str:
    """The tables of groups and of their differences, or the table of classes with intervals, in Markdown."""
    return "\n".join(tables.markdown(tables.renamed(t, WORDS, names), WORDS) for t, _ in _chosen(comparison, by_class))


def latex(comparison: GroupComparison, by_class: bool = False, names: Names | None = None) -> str:
    """The same in LaTeX, the best of each metric, or of each class, in bold."""
    chosen = _chosen(comparison, by_class)
    return "\n".join(tables.latex(tables.renamed(table, WORDS, names), WORDS, bold) for table, bold in chosen)


def html(comparison: GroupComparison) -> str:
    """All tables, with the notes and sentences between them."""
    sentences = "".join(f"<p>{escape(text)}</p>" for text in (*comparison.notes, *comparison.sentences()))
    made = [
        tables.html(group_text(comparison), WORDS, comparison.title),
        tables.html(difference_text(comparison), WORDS, difference_legend(comparison)),
        sentences,
        tables.html(class_text(comparison), WORDS, class_legend(comparison), most=_MOST),
    ]
    return f"<div>{''.join(made)}</div>"


def show(comparison: GroupComparison, names: Names | None = None, console: Console | None = None) -> None:
    """The whole comparison on the terminal."""
    console = console or Console()
    parts = [
        (f"{comparison.title}: mean ± standard deviation over the runs", group_text(comparison)),
        (difference_legend(comparison), difference_text(comparison)),
        (class_legend(comparison), class_text(comparison)),
    ]
    for note in comparison.notes:
        console.print(Text(note, "yellow"))
    for title, table in parts:
        console.print(Text(title))
        shown = tables.renamed(table, WORDS, names)
        for piece in tables.terminal(shown, WORDS, console.width, most=_MOST if "class" in shown else None):
            console.print(piece)
        console.print()
    for sentence in comparison.sentences():
        console.print(Text(sentence))


def plan_text(sd: float, image_sd: float, confidence: float = 0.95) -> str:
    """What could be found by so many seeds, if numbers vary as stated: to be said before anything is trained."""
    lines = [
        f"Differences found with {percent(POWER, 0)} power by one test at level {alpha(confidence)}, in points, for a "
        f"standard deviation over seeds of {_points(sd)} and over images of {_points(image_sd)}:"
    ]
    for seeds in _PLANNED:
        alone, pairs = (
            float(beforehand(sd, seeds, image_sd, paired).detectable(1 - check_confidence(confidence))[0])
            for paired in (False, True)
        )
        lines.append(
            f"{seeds} seeds: {_points(alone)} if that is the deviation of a group's runs, not paired; "
            f"{_points(pairs)} if it is that of the differences of pairs"
        )
    return "\n".join(lines)


def difference_legend(comparison: GroupComparison) -> str:
    """What the table of differences holds."""
    return (
        f"Difference from {comparison.control} over seeds and images, with {level(comparison.confidence)} confidence "
        f"interval; p corrected by Holm over all {comparison.tests} tests"
    )


def class_legend(comparison: GroupComparison) -> str:
    """What the table of classes holds."""
    return (
        f"Accuracy in percent ± standard deviation over the runs, and the difference from {comparison.control} in "
        f"points; {_BEYOND} decided (p < {alpha(comparison.confidence)}, Holm over the classes of a group)"
    )


def group_text(comparison: GroupComparison) -> pd.DataFrame:
    """A row per group, a column per metric: mean ± standard deviation over the runs."""
    rows = comparison.groups
    first = rows.drop_duplicates("group")
    made = {"group": first["group"].tolist(), "seeds": first["seeds"].astype(str).tolist()}
    for metric, shown in comparison.shown.items():
        own = rows[rows["metric"] == metric]
        cells = zip(own["mean"], own["sd"], strict=True)
        made[shown.title] = [f"{shown.text(mean)} ± {_deviation(shown, sd)}" for mean, sd in cells]
    return pd.DataFrame(made)


def difference_text(comparison: GroupComparison) -> pd.DataFrame:
    """A row per group but the control, and metric."""
    rows = comparison.groups[comparison.groups["group"] != comparison.control]
    made = []
    for _, row in rows.iterrows():
        shown = comparison.shown[str(row["metric"])]
        low, high = (shown.difference(float(row[f"difference_{end}"])) for end in ("low", "high"))
        made.append(
            {
                "group": row["group"],
                "metric": shown.title,
                "difference": shown.difference(float(row["difference"])),
                f"{level(comparison.confidence)} CI": f"{low} to {high}",
                f"p (Holm, {comparison.tests} tests)": p_value(row["p_holm"]),
                "verdict": decision(row),
            }
        )
    return pd.DataFrame(made)


def class_text(comparison: GroupComparison) -> pd.DataFrame:
    """A row per class, weakest of the control first; a column per group."""
    order = _order(comparison)
    columns = [order]
    for group, own in _by_group(comparison):
        shown = []
        for _, row in own.loc[order].iterrows():
            cell = f"{percent(row['mean'])} ± {_points(row['sd'])}"
            beyond = _BEYOND if row["verdict"] in ("higher", "lower") else " "
            shown.append(cell if group == comparison.control else f"{cell} {points(row['difference'])}{beyond}")
        columns.append(shown)
    return _side_by_side(columns, comparison)


def _interval_text(comparison: GroupComparison) -> pd.DataFrame:
    """A row per class, weakest of the control first: the mean of each group and its interval."""
    order = _order(comparison)
    columns = [order]
    for _, own in _by_group(comparison):
        rows = own.loc[order]
        cells = zip(rows["mean"], rows["low"], rows["high"], strict=True)
        columns.append([f"{percent(mean)} [{interval(low, high)}]" for mean, low, high in cells])
    return _side_by_side(columns, comparison)


def _side_by_side(columns: list[list[str]], comparison: GroupComparison) -> pd.DataFrame:
    """The classes and a column per group, whatever the groups are called."""
    return pd.DataFrame(list(zip(*columns, strict=True))).set_axis(["class", *comparison.audits], axis=1)


def _chosen(comparison: GroupComparison, by_class: bool) -> list[tuple[pd.DataFrame, Cells]]:
    """The tables for a paper, and the cells of each that are the best."""
    if by_class:
        order = _order(comparison)
        means = pd.concat([own.loc[order, "mean"] for _, own in _by_group(comparison)], axis=1)
        return [(_interval_text(comparison), {(r, c + 1) for r, c in tables.best_of_rows(means)})]
    best: set[tuple[int, int]] = set()
    for column, (metric, shown) in enumerate(comparison.shown.items(), start=2):
        rows = comparison.groups[comparison.groups["metric"] == metric]
        best |= {(row, column) for row in tables.best(rows["mean"].tolist(), shown.best)}
    return [(group_text(comparison), best), (difference_text(comparison), set())]


def _by_group(comparison: GroupComparison) -> list[tuple[str, pd.DataFrame]]:
    """The table of classes of each group, by class, in the order of the groups."""
    table = comparison.classes
    return [(group, table[table["group"] == group].set_index("class")) for group in comparison.audits]


def _order(comparison: GroupComparison) -> list[str]:
    table = comparison.classes
    own = table[table["group"] == comparison.control]
    return [str(name) for name in own.sort_values("mean", kind="stable", na_position="last")["class"]]


def _deviation(shown: Shown, sd: float) -> str:
    """A standard deviation in the unit of its mean."""
    return _points(sd) if shown.unit != "number" else shown.text(sd)


def _points(sd: float) -> str:
    return points(sd).lstrip("+")
