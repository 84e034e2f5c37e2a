"""What a person sees: progress bars, class tables with bars and intervals, findings. Nothing here needs torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from classwise import metrics
from classwise.findings import Finding
from classwise.metrics import accuracy, vulnerable
from classwise.records import CLEAN
from classwise.results import Audit

_BAR = 24  # characters of a full bar
_LEVELS = {"serious": "bold red", "warning": "yellow", "note": "cyan"}


class _Rate(ProgressColumn):
    """Examples per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


def interactive(console: Console) -> bool:
    """Whether somebody is watching: not in a pipe, not in CI."""
    return console.is_terminal and not os.environ.get("CI")


@contextmanager
def progress_bar(total: int, attacks: Sequence[str], show: bool | None = None) -> Iterator[Callable[[str, int], None]]:
    """A bar per attack with rate and time left; yields `report(attack, finished)`. Quiet in CI and in pipes."""
    console = Console(stderr=True)
    if not (interactive(console) if show is None else show):
        yield lambda attack, finished: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {name: progress.add_task(escape(name), total=total) for name in attacks}
        yield lambda attack, finished: progress.advance(tasks[attack], finished)


def bar(value: float, low: float, high: float, width: int = _BAR) -> Text:
    """The value as a filled bar, its interval as a lighter stretch around the end."""
    at, left, right = (round(min(max(v, 0.0), 1.0) * width) for v in (value, low, high))
    text = Text("█" * left, style="green" if value >= 0.5 else "yellow" if value >= 0.25 else "red")
    text.append("▓" * (at - left) + "░" * (right - at), style="dim")
    return text.append(" " * (width - right))


def percent(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.1f}%"


def interval(low: float, high: float) -> str:
    return "–" if pd.isna(low) else f"{100 * low:.1f}–{100 * high:.1f}%"


def class_table(audit: Audit, attack: str | None = None, most: int | None = None, width: int = 80) -> Table:
    """Classes from the weakest to the strongest; with `most`, only that many from each end."""
    name = attack or audit.headline
    rows = audit.by_class(name).sort_values("accuracy", na_position="last", kind="stable")
    clean = accuracy.compute(audit.rows(CLEAN)).values
    table = Table(title=f"Robustness by class under {escape(name)}", title_justify="left", box=None, pad_edge=False)
    for column in ("class", "n", "clean", "robust", "interval", "", "p(worst)", "taken for"):
        text = column in ("class", "taken for")  # only names may be shortened where the terminal is narrow
        table.add_column(
            column,
            justify="right" if column in ("n", "clean", "robust", "p(worst)") else "left",
            no_wrap=True,
            min_width=None if text else max(len(column), 6 if column in ("clean", "robust") else 0),
            overflow="ellipsis" if text else "crop",
        )
    length = min(max(width - 74, 6), _BAR)
    for place, (number, row) in enumerate(rows.iterrows()):
        if most is not None and most <= place < len(rows) - most:
            if place == most:
                table.add_row(f"… {len(rows) - 2 * most} more", *[""] * 7, style="dim")
            continue
        known = row["n"] > 0
        other = row["confused_with"]
        table.add_row(
            escape(row["class"]),
            str(row["n"]),
            percent(clean[int(str(number))]),
            percent(row["accuracy"]),
            interval(row["low"], row["high"]) if known else "no examples",
            bar(row["accuracy"], row["low"], row["high"], length) if known else Text(),
            "" if not known else f"{row['p_worst']:.2f}",
            "" if other is None or pd.isna(other) else f"{escape(other)} {row['confused_share']:.0%}",
        )
    return table


def overview(audit: Audit) -> Table:
    """One line per attack: overall, worst class, CV, MCD."""
    table = Table(box=None, pad_edge=False)
    for column in ("attack", "overall", "worst class", "accuracy", "of the minimum", "CV (%²)", "MCD (%)"):
        table.add_column(column, justify="left" if column in ("attack", "worst class") else "right")
    for name in dict.fromkeys((*audit.names, audit.headline)):
        summary = metrics.summary(audit.rows(name), audit.confidence)
        worst = summary["worst"]
        table.add_row(
            escape(name),
            percent(summary["accuracy"]),
            escape(worst["class"]),
            percent(worst["accuracy"]),
            interval(worst["low"], worst["high"]),
            f"{summary['cv']:.1f}",
            f"{100 * summary['mcd']:.1f}",
        )
    return table


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    for finding in sorted(findings, key=lambda f: list(_LEVELS).index(f.level)):
        style = _LEVELS[finding.level]
        console.print(f"[{style}]{finding.level:>8}[/]  {escape(finding.what)} [dim]{escape(finding.remedy)}[/]")


def show(audit: Audit, console: Console | None = None) -> None:
    """The whole audit on the terminal."""
    console = console or Console()
    names = audit.records.num_classes
    console.print(class_table(audit, most=12 if names > 40 else None, width=console.width))
    console.print()
    console.print(overview(audit))
    console.print()
    worst = audit.worst
    split = vulnerable.compute(audit.rows())
    console.print(
        f"Worst class: [bold]{escape(worst.name)}[/] at [bold]{percent(worst.value)}[/]; the lowest true class "
        f"accuracy lies in {percent(worst.low)} – {percent(worst.high)} ({audit.confidence:.0%})."
    )
    if names <= 40:
        console.print(f"Below the overall robustness: {escape(', '.join(split.vulnerable)) or 'none'}.")
    meta = audit.records.meta
    judged = (
        {"any": "any point tried", "final": "the last iterate"}[meta.attacks[audit.attacks[0]].protocol]
        if audit.attacks
        else "the image"
    )
    console.print(
        f"[dim]{meta.norm} eps {meta.eps:g}, judged on {judged}, seed {meta.seed}, "
        f"{audit.timing.get('wall_seconds', 0):.1f} s[/]"
    )
    if audit.findings:
        console.print()
        show_findings(console, audit.findings)


def side_by_side(audits: Mapping[str, Audit]) -> Table:
    """Class tables of several audits of the same classes next to each other, weakest first by the last of them."""
    first = next(iter(audits.values()))
    table = Table(title=f"Robustness by class under {escape(first.headline)}", title_justify="left", box=None)
    table.add_column("class", no_wrap=True)
    for name in audits:
        table.add_column("clean", justify="right")
        table.add_column("robust", justify="right")
        table.add_column(escape(name), no_wrap=True)
    tables = [(audit.by_class(CLEAN), audit.by_class()) for audit in audits.values()]
    for row in tables[-1][1]["accuracy"].sort_values(kind="stable").index:
        cells: list[str | Text] = [escape(first.records.class_names[row])]
        for clean, robust in tables:
            value, low, high = (float(robust[key].iloc[row]) for key in ("accuracy", "low", "high"))
            known = not pd.isna(value)
            cells += [percent(clean["accuracy"].iloc[row]), percent(value), bar(value, low, high, 12) if known else ""]
        table.add_row(*cells)
    return table
