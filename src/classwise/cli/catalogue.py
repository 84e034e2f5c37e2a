"""The commands list, cite and serve: wiring only."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from classwise.core.errors import unknown
from classwise.core.registry import KINDS

_FILE = 1000  # characters of a line where no terminal limits it, so that each model is one line for grep


def list_(
    kind: Annotated[
        str, typer.Argument(help="attacks, models, datasets, metrics, methods, recipes, figures, studies or zoo.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what is available: attacks, models, datasets, metrics, methods, recipes, figures or studies, each in a sentence; the
    models of the zoo with what their audits found."""
    if kind not in KINDS:
        raise unknown("kind of thing", kind, KINDS)
    module: Any = importlib.import_module(KINDS[kind])
    if hasattr(module, "rows") and not as_json:
        _show_rows(module.rows())
        return
    found = {name: {"what": module.describe(name), "settings": module.usage(name)} for name in module.names()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, about in found.items():
        settings = f"\n[dim]{escape(about['settings'])}[/]" if about["settings"] else ""
        table.add_row(f"[bold]{escape(name)}[/]", escape(about["what"]) + settings)
    Console().print(table)


def _show_rows(rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    from classwise.show import tables

    console, frame = Console(), pd.DataFrame(rows).astype(str)
    if not console.is_terminal:
        console = Console(width=_FILE)
    if not rows:
        console.print("The zoo holds no models.")
    for piece in tables.terminal(frame, frame.columns, console.width, longest=console.width // 2):
        console.print(piece)


def cite(
    what: Annotated[list[str] | None, typer.Argument(help="Run folders, or names of attacks, methods, metrics, data sets and networks. Default: classwise itself.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the BibTeX into this file.")] = None,
) -> None:  # fmt: skip
    """Print BibTeX of what a run used: attacks, method, data, network, metrics, and classwise itself."""
    from classwise.citing.cite import cite as bibtex
    from classwise.core.storage import atomic_write_text

    text = bibtex(*(what or ()))
    if out is None:
        typer.echo(text, nl=False)
    else:
        atomic_write_text(out, text)


def serve(context: typer.Context) -> None:
    """Serve a model over HTTP, as a black box to audit from elsewhere; see: classwise serve --help."""
    from classwise.models.serve import main

    main(context.args)
