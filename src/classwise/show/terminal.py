"""The terminal: progress bars, class tables with bars and intervals, warnings and recommendations."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from classwise import metrics
from classwise.core.format import UNKNOWN, interval, level, percent, probability, radius
from classwise.core.records import CLEAN
from classwise.metrics import accuracy, vulnerable
from classwise.results.audit_result import Audit
from classwise.results.finding import SERIOUS, Finding, by_heading

if TYPE_CHECKING:
    from classwise.results.search_result import SearchResult

_BAR, _SHORT_BAR = 24, 6  # characters of a full bar, and where there is little room
_GAP = 2  # blanks between two columns of a table
_SHORTEST = 6  # characters to which a name may be cut
_STYLES = {"error": "bold red", "warning": "yellow", "recommendation": "green", "info": "cyan"}


class _Rate(ProgressColumn):
    """Examples per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


def interactive(console: Console) -> bool:
    """Whether a person is watching: not in a pipe, not in CI."""
    return console.is_terminal and not os.environ.get("CI")


@contextmanager
def progress_bar(
    total: int | Mapping[str, int], attacks: Sequence[str] = (), show: bool | None = None
) -> Iterator[Callable[[str, int], None]]:
    """A bar per attack with rate and time left; yields `report(attack, finished)`. Quiet in CI and in pipes.

    total: of every attack, or of each bar by its name.
    """
    totals = total if isinstance(total, Mapping) else dict.fromkeys(attacks, total)
    console = Console(stderr=True, force_terminal=show or None)
    if not (interactive(console) if show is None else show):
        yield lambda attack, finished: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {name: progress.add_task(escape(name), total=count) for name, count in totals.items()}
        yield lambda attack, finished: progress.advance(tasks[attack], finished)


def bar(value: float, low: float, high: float, width: int = _BAR) -> Text:
    """The value as a filled bar, its interval as a lighter stretch around the end."""
    at, left, right = (round(min(max(v, 0.0), 1.0) * width) for v in (value, low, high))
    text = Text("█" * left, style="green" if value >= 0.5 else "yellow" if value >= 0.25 else "red")
    text.append("▓" * (at - left) + "░" * (right - at), style="dim")
    return text.append(" " * (width - right))


def _plain_table(headers: Iterable[str], left: Collection[str], title: str = "") -> Table:
    """A table without lines or rows; the columns under the headers `left` are aligned left, the others right."""
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for header in headers:
        table.add_column(Text(header), justify="left" if header in left else "right", no_wrap=True)
    return table


def class_table(audit: Audit, attack: str | None = None, most: int | None = None, width: int = 80) -> Table:
    """Classes from the weakest to the strongest; with `most`, only that many from each end.

    On a narrow terminal the bars are shortened first, then the names; numbers are never cut.
    """
    name = attack or audit.headline
    every = audit.by_class(name).sort_values("accuracy", na_position="last", kind="stable")
    rows = every if most is None or len(every) <= 2 * most else pd.concat([every.head(most), every.tail(most)])
    clean = accuracy.compute(audit.rows(CLEAN)).values[rows.index]
    numbers = [_numbers(row, right) for (_, row), right in zip(rows.iterrows(), clean, strict=True)]
    errors = [_most_errors(row) for _, row in rows.iterrows()]
    ci = f"{level(audit.confidence)} CI"
    headers = ("n", "clean", "robust", ci, "p(worst)")
    free = width - sum(max(map(len, column)) for column in zip(headers, *numbers, strict=True)) - 7 * _GAP
    names = ("class", *rows["class"]), ("misclassified as", *(f"{other} {share}" for other, share in errors))
    wanted = [max(map(cell_len, column)) for column in names]
    length = min(max(free - sum(wanted), _SHORT_BAR), _BAR)
    mine, theirs = _fit(wanted, free - length)

    columns = ("class", *headers[:4], "", headers[4], "misclassified as")
    table = _plain_table(columns, ("class", ci, "", "misclassified as"), f"Robustness by class under {name}")
    for place, (_, row) in enumerate(rows.iterrows()):
        if len(rows) < len(every) and place == most:
            table.add_row(f"… {len(every) - len(rows)} more", style="dim")
        shown = bar(row["accuracy"], row["low"], row["high"], length) if row["n"] else Text()
        (*first, last), (other, share) = numbers[place], errors[place]
        with_share = _cut(other, theirs - cell_len(share) - 1).append(f" {share}" if share else "")
        table.add_row(_cut(row["class"], mine), *first, shown, last, with_share)
    return table


def _numbers(row: pd.Series[Any], clean: float) -> list[str]:
    known = row["n"] > 0
    within = interval(row["low"], row["high"]) if known else "no examples"
    return [
        str(row["n"]),
        percent(clean),
        percent(row["accuracy"]),
        within,
        probability(row["p_worst"]) if known else "",
    ]


def _most_errors(row: pd.Series[Any]) -> tuple[str, str]:
    """The class most of this one's errors go to, and their share; empty where there are no errors."""
    other = row["confused_with"]
    return ("", "") if other is None or pd.isna(other) else (other, percent(row["confused_share"], 0))


def _fit(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room together: the widest is cut first."""
    fitted = list(widths)
    while sum(fitted) > room and max(fitted) > _SHORTEST:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _cut(name: str, width: int) -> Text:
    """A name as it is, markup and all, cut to the width with an ellipsis."""
    text = Text(name)
    text.truncate(width, overflow="ellipsis")
    return text


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
    room = width - sum(widths) + sum(widths[column] for column in names) - _GAP * (len(headers) - 1)
    most = dict(zip(names, _fit([widths[column] for column in names], room), strict=True))
    table = _plain_table(headers, ("attack", "worst class"))
    for line in lines:
        table.add_row(*(_cut(cell, most[column]) if column in names else cell for column, cell in enumerate(line)))
    return table


def curve_tables(audit: Audit, most: int | None = None) -> list[Table]:
    """For each attack that ran at several radii: each class's accuracy there, area under the curve, median distance.

    Classes from the smallest area to the largest; with `most`, only that many from each end.
    """
    points, areas = audit.curve(), audit.areas()
    tables = []
    for family, own in points.groupby("family", sort=False):
        headers = ("class", *map(_radius, own["eps"].unique()), "area", "median")
        table = _plain_table(headers, ("class",), f"Robustness along eps under {family}")
        grid = own.pivot_table(index="class", columns="eps", values="accuracy", sort=False, dropna=False)
        mine = areas[areas["family"] == family].sort_values("area", kind="stable", na_position="last")
        for place, row in enumerate(mine.to_dict("records")):
            if most is not None and most <= place < len(mine) - most:
                if place == most:
                    table.add_row(f"… {len(mine) - 2 * most} more", style="dim")
                continue
            median = row["median_distance"]
            far = UNKNOWN if pd.isna(median) else f"> {_radius(row['eps'])}" if median > row["eps"] else _radius(median)
            table.add_row(Text(row["class"]), *map(percent, grid.loc[row["class"]]), percent(row["area"]), far)
        tables.append(table)
    return tables


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


def show(audit: Audit, console: Console | None = None, besides: Sequence[str] = ()) -> None:
    """The whole audit on the terminal; besides: metrics to show in the overview besides the usual ones."""
    console = console or Console()
    names = audit.records.num_classes
    console.print(class_table(audit, most=12 if names > 40 else None, width=console.width))
    console.print()
    console.print(overview(audit, console.width, besides))
    console.print()
    for table in curve_tables(audit, most=12 if names > 40 else None) if audit.has_curve else ():
        console.print(table)
        console.print()
    console.print(Text(audit.verdict().sentence, "bold"))
    if names <= 40:
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


def show_worst(found: SearchResult, console: Console | None = None) -> None:
    """The result of a search for the worst class: the classes with their bounds, those in question first."""
    console = console or Console()
    headers = ("class", "n", "correct", "attacked", "robust", "estimate", "bounds", "worst")
    title = "Robust accuracy on all images: estimates and bounds"
    table = _plain_table(headers, ("class", "bounds", "worst"), title)
    rows = found.by_class().sort_values(["in_question", "high"], ascending=[False, True], kind="stable")
    for row in rows.to_dict("records"):
        numbers = [str(row[key]) for key in ("n", "right", "attacked", "robust")]
        bounds = interval(row["low"], row["high"])
        answer = "yes" if len(found.worst) == 1 else "maybe"
        mark = Text(answer, "bold red") if row["in_question"] else Text("no" if row["n"] else "no image", "dim")
        table.add_row(Text(row["class"]), *numbers, percent(row["estimate"]), bounds, mark)
    console.print(table)
    console.print()
    console.print(Text(f"{found}."))
    show_findings(console, found.findings)


def side_by_side(audits: Mapping[str, Audit]) -> Table:
    """Class tables of several audits of the same classes next to each other, weakest first by the last of them."""
    first = next(iter(audits.values()))
    headers = ("class", *(header for name in audits for header in ("clean", "robust", name)))
    table = _plain_table(headers, ("class", *audits), f"Robustness by class under {first.headline}")
    tables = [(audit.by_class(CLEAN), audit.by_class()) for audit in audits.values()]
    for row in tables[-1][1]["accuracy"].sort_values(kind="stable").index:
        cells: list[str | Text] = [Text(first.records.class_names[row])]
        for clean, robust in tables:
            value, low, high = (float(robust[key].iloc[row]) for key in ("accuracy", "low", "high"))
            known = not pd.isna(value)
            cells += [percent(clean["accuracy"].iloc[row]), percent(value), bar(value, low, high, 12) if known else ""]
        table.add_row(*cells)
    return table
