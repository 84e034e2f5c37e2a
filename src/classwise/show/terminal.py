"""Results on the terminal: the overview of an audit, curves, searches, warnings and recommendations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from classwise import metrics
from classwise.core.format import UNKNOWN, interval, level, percent, radius
from classwise.core.records import CLEAN
from classwise.metrics import vulnerable
from classwise.results.audit_result import Audit
from classwise.results.finding import SERIOUS, Finding, by_heading
from classwise.show import tables
from classwise.show.class_table import GAP, Choice, bar, bar_legend, class_details, class_table, cut, fit, plain_table

if TYPE_CHECKING:
    from classwise.results.search_result import SearchResult

_SHORTEST = 6  # characters to which names in the overview may be cut
SEARCH_WORDS = ("class", "bounds", "worst")
_STYLES = {"error": "bold red", "warning": "yellow", "recommendation": "green", "info": "cyan"}


def overview(audit: Audit, width: int = 80, besides: Sequence[str] = ()) -> Table:
    """One line per attack: overall, worst class, the metrics that say they are shown here, and those named besides."""
    lines, extra = [], metrics.shown("terminal", besides)
    for name in dict.fromkeys((*audit.names, audit.headline)):
        rows, found = audit.rows(name), audit.verdict(name)
        overall, within = percent(metrics.overall.compute(rows).value), interval(found.low, found.high)
        numbers = (metric.written(rows) for metric in extra)
        lines.append((name, overall, found.label, percent(found.accuracy), within, *numbers))
    titles = (metric.shown.title for metric in extra)
    headers = ("attack", "overall", "worst class", "accuracy", f"{level(audit.confidence)} CI", *titles)
    widths = [max(map(cell_len, column)) for column in zip(headers, *lines, strict=True)]
    names = [headers.index("attack"), headers.index("worst class")]
    room = width - sum(widths) + sum(widths[column] for column in names) - GAP * (len(headers) - 1)
    most = dict(
        zip(names, fit([widths[column] for column in names], room, (_SHORTEST, len("worst class"))), strict=True)
    )
    table = plain_table(headers, ("attack", "worst class"))
    for line in lines:
        table.add_row(*(cut(cell, most[column]) if column in names else cell for column, cell in enumerate(line)))
    return table


def curve_tables(audit: Audit, choice: Choice | None = None) -> dict[str, pd.DataFrame]:
    """For each attack that ran at several radii: each class's accuracy there, area under the curve, median distance.

    Classes from the smallest area to the largest, unless another order is chosen.
    """
    points, areas = audit.curve(), audit.areas()
    made = {}
    for family, own in points.groupby("family", sort=False):
        grid = own.pivot_table(index="class", columns="eps", values="accuracy", sort=False, dropna=False)
        mine = (choice or Choice()).arranged(areas[areas["family"] == family], columns={"robust": "area"})
        rows = [
            [row["class"], *map(percent, grid.loc[row["class"]]), percent(row["area"]), _median(row)]
            for row in mine.to_dict("records")
        ]
        made[str(family)] = pd.DataFrame(rows, columns=["class", *map(_radius, own["eps"].unique()), "area", "median"])
    return made


def _median(row: Mapping[Any, Any]) -> str:
    """The distance at which half of a class is broken; beyond the largest radius only that is known."""
    median = row["median_distance"]
    if pd.isna(median):
        return UNKNOWN
    return f"> {_radius(row['eps'])}" if median > row["eps"] else _radius(median)


def _radius(eps: float) -> str:
    return radius(eps) if eps else "clean"


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Warnings, recommendations and notes, each under its heading, the most severe first."""
    for heading, group in by_heading(findings).items():
        console.print(Text(f"\n{heading}", "bold"))
        for finding in group:
            mark = f"{finding.severity}: " if finding.severity in SERIOUS else ""
            style = _STYLES[finding.severity]
            console.print(Text.assemble(("• ", style), (mark, style), f"{finding.what} ", (finding.remedy, "dim")))


def show(
    audit: Audit, console: Console | None = None, besides: Sequence[str] = (), choice: Choice | None = None
) -> None:
    """The whole audit on the terminal; besides: metrics to show in the overview besides the usual ones."""
    console, choice = console or Console(), choice or Choice()
    many = choice.most(audit.records.num_classes) is not None
    show_classes(audit, console, choice=choice)
    console.print()
    console.print(overview(audit, console.width, besides))
    console.print()
    for family, table in curve_tables(audit, choice).items() if audit.has_curve else ():
        console.print(Text(f"Robustness along eps under {family}", "italic"))
        for piece in tables.terminal(table, ("class",), console.width, most=choice.most(len(table))):
            console.print(piece)
        console.print()
    console.print(Text(audit.verdict().sentence, "bold"))
    if not many:
        split = vulnerable.compute(audit.rows())
        console.print(Text(f"Below the overall robust accuracy: {', '.join(split.vulnerable) or 'none'}."))
    meta = audit.records.meta
    protocol = meta.attacks[audit.attacks[0]].protocol if audit.attacks else ""
    judged = {"any": "any point tried", "final": "the last iterate"}.get(protocol, "the image")
    console.print(
        f"[dim]{meta.norm} eps {radius(meta.eps)}, judged on {judged}, seed {meta.seed}, "
        f"{audit.timing.get('wall_seconds', 0):.1f} s[/]"
    )
    for name, cost in audit.timing.get("attacks", {}).items():
        if "kept" in cost:
            kept, left = int(cost["kept"]), int(cost["survive_rounding"])
            console.print(
                Text(f"{name}: {kept:,} adversarial images kept; {left:,} survive rounding to 8 bits.", "dim")
            )
    show_findings(console, audit.findings)


def show_classes(audit: Audit, console: Console, attack: str | None = None, choice: Choice | None = None) -> None:
    """The table of classes, what its bars are, and how to see the classes that it leaves out."""
    choice = choice or Choice()
    console.print(class_table(audit, attack, console.width, choice))
    console.print(bar_legend(audit.confidence))
    if choice.most(audit.records.num_classes) is not None and not choice.classes:
        where = f"classwise show {audit.folder}" if audit.folder is not None else "audit.by_class()"
        more = " --all shows every class, --class NAME one of them" if audit.folder is not None else " has every class"
        console.print(Text(where + more, "dim"), soft_wrap=True)
    for name in choice.classes:
        console.print()
        console.print(class_details(audit, name, console.width))


def show_worst(found: SearchResult, console: Console | None = None, choice: Choice | None = None) -> None:
    """The result of a search for the worst class: the classes with their bounds, those in question first."""
    console, choice = console or Console(), choice or Choice()
    table = search_text(found, searched(found, choice))
    console.print(Text("Robust accuracy on all images: estimates and bounds", "italic"))
    for piece in tables.terminal(table, SEARCH_WORDS, console.width, most=choice.most(len(table))):
        console.print(piece)
    console.print()
    console.print(Text(f"{found}."))
    show_findings(console, found.findings)


def searched(found: SearchResult, choice: Choice) -> pd.DataFrame:
    """The classes of a search, those in question first unless another order is chosen."""
    every = found.by_class().sort_values(["in_question", "high"], ascending=[False, True], kind="stable")
    return choice.arranged(every, usual="data", columns={"robust": "estimate"})


def search_text(found: SearchResult, rows: pd.DataFrame) -> pd.DataFrame:
    """The classes of a search as text."""
    answer = "yes" if len(found.worst) == 1 else "maybe"
    return pd.DataFrame(
        {
            "class": rows["class"],
            "n": rows["n"].astype(str),
            "correct": rows["right"].astype(str),
            "attacked": rows["attacked"].astype(str),
            "robust": rows["robust"].astype(str),
            "estimate": rows["estimate"].map(percent),
            "bounds": [interval(*ends) for ends in zip(rows["low"], rows["high"], strict=True)],
            "worst": [
                answer if asked else "no" if n else "no image"
                for asked, n in zip(rows["in_question"], rows["n"], strict=True)
            ],
        }
    )


def side_by_side(audits: Mapping[str, Audit]) -> Table:
    """Class tables of several audits of the same classes next to each other, weakest first by the last of them."""
    first = next(iter(audits.values()))
    headers = ("class", *(header for name in audits for header in ("clean", "robust", name)))
    table = plain_table(headers, ("class", *audits), f"Robustness by class under {first.headline}")
    tables = [(audit.by_class(CLEAN), audit.by_class()) for audit in audits.values()]
    for row in tables[-1][1]["accuracy"].sort_values(kind="stable").index:
        cells: list[str | Text] = [Text(first.records.class_names[row])]
        for clean, robust in tables:
            value, low, high = (float(robust[key].iloc[row]) for key in ("accuracy", "low", "high"))
            known = not pd.isna(value)
            cells += [percent(clean["accuracy"].iloc[row]), percent(value), bar(value, low, high, 12) if known else ""]
        table.add_row(*cells)
    return table
