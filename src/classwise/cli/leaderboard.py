"""The commands leaderboard and leaderboard verify: wiring only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from classwise.auditing.config import AuditConfig
from classwise.cli.options import with_options
from classwise.core.errors import UserError
from classwise.core.settings import settings_of

_BUILD = "build"
_WHERE = ("weights", "normalize", "num_classes", "root", "trust", "device", "batch_size", "workers", "progress")


class _RunsOrCommand(TyperGroup):
    """``leaderboard RUN…`` is ``leaderboard build RUN…``: what is no command is a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_BUILD, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_RunsOrCommand, no_args_is_help=True)


@app.callback()
def _leaderboard() -> None:
    """Rank audits by their worst class: classwise leaderboard RUN… --out board; or verify a submission."""


@app.command(_BUILD)
def build(
    runs: Annotated[list[str], typer.Argument(help="Run folders of finished audits, patterns, or folders of runs such as a zoo.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the board into this folder: a page, CSV, JSON, Markdown, and a report for each model.")] = None,
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="The attack that decides. Default: each audit's headline.")] = None,
    common: Annotated[bool, typer.Option("--common", help="Rank audits of different images together, on those that all of them saw.")] = False,
    sort: Annotated[str, typer.Option("--sort", help="Column that the terminal sorts by: worst, average, clean, cv, mcd, bottom_tenth, rank, name, training_seconds.")] = "worst",
    confidence: Annotated[float, typer.Option("--confidence", help="Confidence level of all intervals, including those of the ranks.")] = 0.95,
    printed: Annotated[bool | None, typer.Option("--printed/--no-printed", help="Numbers printed in papers: also on the terminal, or nowhere. Default: in --out only.")] = None,
    reports: Annotated[bool, typer.Option("--reports/--no-reports", help="Write a report for each model.")] = True,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "Leaderboard",
    as_json: Annotated[bool, typer.Option("--json", help="Print the board as JSON.")] = False,
) -> None:  # fmt: skip
    """Rank audits by their worst class, with intervals of the ranks; only what is comparable is ranked together."""
    from classwise.published.leaderboard import leaderboard
    from classwise.show import leaderboard as shown
    from classwise.show.page import board as page
    from classwise.show.page import commands

    board = leaderboard(runs, attack, common, confidence, printed is not False)
    by_column = board.sorted_by(sort)
    if as_json:
        typer.echo(board.to_json(), nl=False)
    else:
        shown.show(by_column, printed=bool(printed))
    if out is not None:
        if out.exists() and not out.is_dir():
            raise UserError(f"{out} is a file; --out must be a folder.")
        notes = Console(stderr=True)
        given: dict[str, Any] = {"out": str(out), "attack": attack, "common": common or None, "title": title}
        given |= {"confidence": confidence} if confidence != 0.95 else {}
        given |= {"printed": False} if printed is False else {}
        words = ["classwise", "leaderboard", *runs, *commands.words(given)]
        written = page.build(board, out, title, words, reports, say=lambda text: notes.print(Text(text, "dim")))
        notes.print(f"look at it in a browser: {written}", soft_wrap=True)


@app.command()
@with_options(one for name, one in settings_of(AuditConfig).items() if name in _WHERE)
def verify(
    run: Annotated[Path, typer.Argument(help="Run folder of the submitted audit.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="The submitted model. Default: the one the run names.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="Its data set. Default: the one the run names.")] = None,
    per_class: Annotated[int, typer.Option("--per-class", help="Random images of each class to audit again.")] = 20,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed for drawing the images. Default: a fresh random one.")] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Share of images that rounding may break here only.")] = 0.001,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every image as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    **given: Any,
) -> None:  # fmt: skip
    """Audit a random part of a submission again and compare row by row; exit with code 1 if it does not hold."""
    from classwise.auditing.verify import verify as verify_run
    from classwise.core.storage import atomic_write_text
    from classwise.show import verification as shown

    result = verify_run(run, model, data, per_class, seed, tolerance, **given)
    if csv is not None:
        atomic_write_text(csv, result.to_csv())
    if as_json:
        typer.echo(json.dumps(result.summary(), indent=1, allow_nan=False))
    else:
        shown.show(result)
    if not result.passed:
        raise typer.Exit(1)
