"""The commands list and serve: wiring only."""

from __future__ import annotations

import importlib
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from classwise.core.errors import unknown
from classwise.core.registry import KINDS


def list_(
    kind: Annotated[
        str, typer.Argument(help="attacks, models, datasets, metrics, methods, recipes, figures or studies.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what there is: attacks, models, datasets, metrics, methods, recipes, figures or studies, each in a sentence."""
    if kind not in KINDS:
        raise unknown("kind of thing", kind, KINDS)
    module: Any = importlib.import_module(KINDS[kind])
    found = {name: {"what": module.describe(name), "settings": module.usage(name)} for name in module.names()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, about in found.items():
        settings = f"\n[dim]{escape(about['settings'])}[/]" if about["settings"] else ""
        table.add_row(f"[bold]{escape(name)}[/]", escape(about["what"]) + settings)
    Console().print(table)


def serve(context: typer.Context) -> None:
    """Answer for a model over HTTP, as a black box to audit from elsewhere; see: classwise serve --help."""
    from classwise.models.serve import main

    main(context.args)
