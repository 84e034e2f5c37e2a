"""The command study, and what it shares with reproduce: wiring only."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from classwise.cli.study_options import Common, with_common
from classwise.core.errors import UserError, unknown
from classwise.core.stopping import exit_code

if TYPE_CHECKING:
    from classwise.studies import Study, StudyResult

_PROBING = 30.0  # seconds that a dry run of a study may measure in all; the rest is counted

_NAMED = "classwise.study"  # which study is asked about

#: Options of a study that are not fields of it are errors; everything after its name is read by `_options`.
STUDY_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


@with_common
def study(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which study; see: classwise list studies.")],
    common: Common,
) -> None:
    """Run a study: its trainings and audits, then its tables, figures and verdicts.

    A study's own options come with it: --model, --recipe, --set, --per-class, --attack, … See: classwise study NAME
    --help.
    """
    from classwise import studies

    given = _options(context.args, name)
    _check_known(given, name, context)
    chosen = studies.parse(name, given)
    folder = common.out or Path("runs") / name.rpartition(":")[2]
    if common.dry_run:
        show_plan(chosen, folder, common)
        return
    run(chosen, folder, common)


class StudyCommand(TyperCommand):
    """``study NAME --help`` shows the options of that study besides those of every one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from classwise import studies

        ctx.meta[_NAMED] = next((word for word in args if studies.knows(word)), None)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        if (name := ctx.meta.get(_NAMED)) is not None:
            _show_options(name)


def _show_options(name: str) -> None:
    """The study's own options: what each takes, its default, and what it means."""
    from rich.table import Table

    from classwise import studies
    from classwise.studies.runner.options import options

    console = Console()
    console.print(f"[bold]{escape(name)}[/]: {escape(studies.describe(name))}\n")
    table = Table(box=None, pad_edge=False)
    table.add_column("option", overflow="fold")
    table.add_column("what it is", overflow="fold", ratio=1)
    for option in options(studies.study_class(name)):
        default = f" [default: {option.default}]" if option.default else ""
        table.add_row(escape(f"{option.flag} {option.kind}"), escape(option.meaning + default))
    console.print(table)


def _check_known(given: Mapping[str, Any], name: str, context: typer.Context) -> None:
    """Raise for an option that neither the study has nor every study, with the near miss among both."""
    from classwise import studies
    from classwise.studies.runner.options import flag

    own = [field.name for field in dataclasses.fields(studies.study_class(name))]
    common = [text for parameter in context.command.params for text in parameter.opts if text.startswith("--")]
    for key in given:
        if key not in own:
            raise unknown(f"option of the study {name}", flag(key), [*map(flag, own), *common])


def _options(arguments: Sequence[str], name: str) -> dict[str, Any]:
    """``--inv-temperature 1,2 --model a --model b`` as {"inv_temperature": "1,2", "model": ["a", "b"]}."""
    found: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            raise UserError(f"{flag!r} is not an option of the study {name}; options begin with --.")
        if not equals:
            if not rest:
                raise UserError(f"{flag} needs a value.")
            value = rest.pop(0)
        found.setdefault(flag[2:].replace("-", "_"), []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def run(chosen: Study, folder: Path, common: Common) -> None:
    """Run a study, write its result and show it."""
    from classwise import studies

    with _watching(common.progress) as watch:
        try:
            result = studies.run(
                chosen,
                folder,
                environment=common.environment,
                engine_spec=common.engine,
                resources=common.resources,
                shards=common.shards,
                use=common.given,
                pool=common.pool,
                zoo=common.zoo,
                watch=watch,
                say=lambda sentence: Console(stderr=True).print(sentence, markup=False, soft_wrap=True),
            )
        except KeyboardInterrupt as stop:
            Console(stderr=True).print(f"stopped; the same command resumes in {escape(str(folder))}.", soft_wrap=True)
            raise typer.Exit(exit_code(stop)) from None
    _show(result, folder)


@contextlib.contextmanager
def _watching(wanted: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    """A bar of jobs on a terminal, else a line for each finished one."""
    from classwise.show.progress import interactive

    console = Console(stderr=True)
    if not (interactive(console) if wanted is None else wanted):
        yield lambda name, number, total: console.print(f"{number} of {total}: {name}", markup=False, soft_wrap=True)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("jobs", total=None)
        yield lambda name, number, total: bars.update(task, description=name, completed=number, total=total)


@contextlib.contextmanager
def _measuring(wanted: bool | None, jobs: int) -> Iterator[Callable[[str], None]]:
    """What is being measured, on one line of a terminal, else a line for each job."""
    from classwise.show.progress import interactive

    console = Console(stderr=True)
    if not (interactive(console) if wanted is None else wanted):
        yield lambda name: console.print(f"measuring {name} …", markup=False, soft_wrap=True)
        return
    with console.status(f"planning {jobs} jobs …") as status:
        yield lambda name: status.update(f"measuring {escape(name)} ({jobs} jobs in all) …")


def show_plan(
    chosen: Study,
    folder: Path,
    common: Common,
    budget: float = _PROBING,
) -> None:
    """Print the jobs of a study and about how long each takes: measured within the budget, in seconds, else counted."""
    from classwise.studies.runner import cost
    from classwise.studies.runner.estimate import estimate, show
    from classwise.studies.runner.from_zoo import in_zoo
    from classwise.studies.runner.graph import Graph
    from classwise.studies.runner.study import check_given
    from classwise.studies.runner.work import Workspace

    workspace = Workspace(folder, Graph.of(chosen.jobs()), common.environment, common.pool)
    for name, given in common.given.items():
        check_given(workspace, name, given)
    with _measuring(common.progress, len(workspace.graph)) as watch:
        found = estimate(
            workspace,
            common.resources,
            given=common.given,
            budget=budget,
            count=lambda job: cost.seconds_of(job, workspace.graph),
            zoo=in_zoo(workspace.graph) if common.zoo else {},
            watch=watch,
        )
    show(found, common.resources)


def _show(result: StudyResult, folder: Path) -> None:
    """The tables of a study and its verdicts; its page is written beside them."""
    from classwise.core.run_folder import StudyFolder
    from classwise.show import tables
    from classwise.show.page import study as study_page

    console = Console()
    for name, frame in result.tables.items():
        console.print(f"\n[bold]{escape(name.replace('_', ' '))}[/]")
        for piece in tables.terminal(tables.printed(frame), tables.words(frame), console.width, most=40):
            console.print(piece)
    styles = {"held": "green", "did not hold": "red"}
    if result.claims:
        console.print()
    for claim in result.claims:
        needs = f"; would decide it: {claim.needs}" if claim.needs else ""
        console.print(
            f"[{styles.get(claim.verdict, 'yellow')}]{claim.verdict}[/]: {escape(claim.text)} "
            f"[dim]{escape(claim.numbers)} ({escape(claim.source)}; test: {escape(claim.test)}{escape(needs)})[/]",
            soft_wrap=True,
        )
    page = study_page.build(folder, StudyFolder(folder).html)
    console.print(f"\nall of it: {page} (as text: {StudyFolder(folder).page})", markup=False, soft_wrap=True)
