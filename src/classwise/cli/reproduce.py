"""The command reproduce: wiring only."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from classwise.cli.studies import run, show_plan
from classwise.cli.study_options import Common, with_common
from classwise.core.errors import UserError
from classwise.core.format import duration

if TYPE_CHECKING:
    from classwise.studies.reproduction.reproduce import ReproductionPlan


@with_common
def reproduce(
    common: Common,
    name: Annotated[str | None, typer.Argument(help="A table or figure, e.g. tian2021:table1; see --list.")] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="desk: small models, on two CPU cores; paper: the papers' own.")
    ] = "desk",
    listed: Annotated[
        bool, typer.Option("--list", help="Every table and figure, and what each costs here at both scales.")
    ] = False,
) -> None:
    """Reproduce a table or figure of a paper, with the printed numbers beside the measured ones."""
    from classwise.studies.reproduction import reproduce as reproductions

    if listed:
        _show_list(common.zoo)
        return
    if name is None:
        raise UserError("which table or figure? classwise reproduce --list names them, e.g. tian2021:table1.")
    plan = reproductions.plan(name, scale)
    above = Path("runs") / "reproduce" / scale
    folder = common.out or above / name.replace(":", "-")
    common = dataclasses.replace(common, pool=common.pool or above / "jobs")
    if common.dry_run:
        _show_reproduction(plan, folder, common)
        return
    run(plan, folder, common)


def _show_list(zoo: bool) -> None:
    """Every table and figure below the title of its paper, and what it costs here."""
    from itertools import groupby

    from rich.table import Table

    from classwise import published
    from classwise.studies.reproduction import reproduce as reproductions

    console = Console()
    scales: tuple[reproductions.Scale, ...] = ("desk", "paper")
    for _, group in groupby(published.items(), key=lambda item: item.paper):
        items = list(group)
        console.print(f"[bold]{escape(items[0].citation)}[/]", soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        for column in ("id", "what", *scales):
            table.add_column(column, justify="right" if column in scales else "left", no_wrap=column != "what")
        for item in items:
            plans = [reproductions.plan(item.id, scale) for scale in scales] if item.study else []
            what = escape(item.title) + (f" [dim]({item.study})[/]" if item.study else "")
            table.add_row(item.id, what, *(_price(reproductions.hours(plan, zoo)) for plan in plans))
        console.print(table)
        console.print()
    console.print("Times are counted for this machine, to a factor of two; the study is in brackets.", style="dim")


def _show_reproduction(plan: ReproductionPlan, folder: Path, common: Common) -> None:
    """The jobs of a plan at the price that is counted for them, and what is not as in the paper."""
    show_plan(plan, folder, common, budget=0.0)
    console = Console()
    if plan.differs:
        console.print("\nNot as in the paper:")
    for sentence in plan.sentences:
        console.print(f"  {sentence}", markup=False, soft_wrap=True)


def _price(hours: float | None) -> str:
    return duration(math.nan if hours is None else 3600 * hours)
