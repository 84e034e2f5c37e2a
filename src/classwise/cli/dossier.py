"""The command dossier: wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from classwise.core.errors import UserError


def dossier(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders of finished audits of one model; the first is the main one.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the dossier.")] = Path("dossier"),
    facts: Annotated[Path | None, typer.Option("--facts", help="TOML file with what no measurement can know: purpose, reasons, names.")] = None,
    template: Annotated[Path | None, typer.Option("--template", help="Only write a file of facts to fill.")] = None,
    verify: Annotated[Path | None, typer.Option("--verify", help="Only check a dossier against its manifest; exit 1 if a file changed.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the dossier.")] = None,
    pdf: Annotated[bool, typer.Option("--pdf/--no-pdf", help="Print it as PDF too, where there is a Chromium.")] = True,
) -> None:  # fmt: skip
    """Write an audit dossier: HTML, PDF, data and a manifest, with what an auditor asks for."""
    console = Console(stderr=True)
    if template is not None:
        _write_template(template)
        return
    if verify is not None:
        _verify(verify, console)
        return
    if not runs:
        raise UserError(
            "a dossier needs at least one run folder of a finished audit: classwise dossier RUN --out FOLDER."
        )
    from classwise.show.dossier import dossier as write

    made = write(runs, out, facts, title, pdf)
    for note in made.notes:
        console.print(escape(note), style="yellow", soft_wrap=True)
    typer.echo(made.folder / "dossier.html")


def _write_template(path: Path) -> None:
    from classwise.core.storage import atomic_write_text
    from classwise.results.dossier.facts import template

    if path.exists() and path.is_file() and path.stat().st_size:
        raise UserError(f"{path} exists; choose another file for the facts, so that none that are filled in are lost.")
    atomic_write_text(path, template())
    typer.echo(path)


def _verify(folder: Path, console: Console) -> None:
    from classwise.show.dossier import manifest

    found = manifest.verify(folder)
    for sentence in found:
        console.print(escape(sentence), style="bold red", soft_wrap=True)
    if found:
        raise typer.Exit(1)
    typer.echo(f"{folder}: every file is as it was written.")
