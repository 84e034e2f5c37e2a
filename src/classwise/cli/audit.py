"""The commands audit (and its mode --find-worst) and what shows their results: wiring only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from classwise.auditing.config import AuditConfig
from classwise.cli.options import with_options
from classwise.core.csv_files import write_csv
from classwise.core.errors import Unfinished, UserError
from classwise.core.settings import settings_of
from classwise.core.shard import Shard
from classwise.core.spec import items
from classwise.core.stopping import exit_code
from classwise.core.storage import atomic_write_text

if TYPE_CHECKING:
    from classwise.results.audit_result import Audit
    from classwise.results.criteria import Criteria
    from classwise.results.repair_result import RepairResult
    from classwise.results.search_result import SearchResult


@with_options(settings_of(AuditConfig).values())
def audit(**given: Any) -> None:
    """Attack a classifier and report its robustness class by class."""
    config = _config(given)
    criteria = config.gate.criteria()  # a typing error here should not cost an audit
    from classwise.show import terminal

    try:
        if config.statistics.find_worst:
            from classwise.auditing.find_worst import search_by

            found = search_by(config)
            present(found, lambda: terminal.show_worst(found), config.output.as_json, config.output.csv)
            return
        from classwise.auditing.audit import audit_by

        result = audit_by(config)
    except Unfinished as rest:
        Console(stderr=True).print(f"shard {config.shard} is done: {escape(str(rest))}", soft_wrap=True)
        return
    except KeyboardInterrupt as stop:
        raise resumable(stop, config.folder, "audit") from None
    own = criteria.own_metrics()
    present(result, lambda: terminal.show(result, besides=own), config.output.as_json, config.output.csv)
    enforce(result, criteria, config.gate.junit, config.gate.summary)


def resumable(stop: KeyboardInterrupt, folder: Path | None, what: str) -> typer.Exit:
    """Say how to resume what was stopped, and the exit that is due."""
    how = f"the same command resumes in {folder}" if folder else f"with --out a stopped {what} can be resumed"
    Console(stderr=True).print(f"stopped; {escape(how)}.", soft_wrap=True)
    return typer.Exit(exit_code(stop))


def typed(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, by the settings' names in Python."""
    known = {name: value for name, value in given.items() if value is not None}
    if "classes" in known:
        known["classes"] = [name for name in items(known["classes"], older=",") if name]
    return known


def _config(given: dict[str, Any]) -> AuditConfig:
    """What the options ask for; those that are not given have the defaults of the settings."""
    known = typed(given)
    shard = Shard.of_environment() if "shard" not in known else None
    if not known.pop("find_worst"):
        return AuditConfig.of(**known, **({} if shard is None else {"shard": str(shard)}))
    if shard is not None:
        raise UserError(
            f"{shard.count} processes were started, and a search for the worst class is led by one: every round depends "
            "on the one before. Start one process."
        )
    for one, _ in AuditConfig.of(**known).changed():
        if one.mode == "audit":
            raise UserError(
                f"{one.flags[0].partition('/')[0]} does not go with --find-worst, which attacks only as many images as it "
                "takes to name the worst class. Leave one of them out."
            )
    return AuditConfig.of_search(**known)


def present(
    result: Audit | SearchResult | RepairResult,
    draw: Callable[[], None],
    as_json: bool,
    csv: str | Path | None,
    *of: str,
) -> None:
    """Write the class table where that is asked for, and print the summary, or what `draw` prints.

    of: the attack of the class table, if not the headline one.
    """

    if csv is not None:
        write_csv(Path(csv), result.by_class(*of))
    if as_json:
        typer.echo(json.dumps(result.summary(), indent=1, allow_nan=False))
    else:
        draw()


def enforce(result: Audit, criteria: Criteria, junit: str | Path | None, summary: str | Path | None) -> None:
    """Print whether the requirements hold; leave with 1 where one does not."""
    from classwise.show import gate

    checked = criteria.check(result)
    console = Console(stderr=True)
    for sentence, good in gate.lines(checked):
        console.print(escape(sentence), style="green" if good else "bold red", soft_wrap=True)
    for note in checked.notes:
        console.print(escape(note), style="dim", soft_wrap=True)
    if junit is not None:
        gate.write_junit(Path(junit), checked, result)
    if summary is not None:
        atomic_write_text(Path(summary), gate.markdown(checked, result))
    if not checked.passed:
        raise typer.Exit(1)
