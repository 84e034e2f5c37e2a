"""The command study, and what it shares with reproduce: wiring only."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from classwise.core.errors import UserError, unknown
from classwise.core.stopping import exit_code

if TYPE_CHECKING:
    from classwise.dispatch import Resources
    from classwise.studies import Study, StudyResult
    from classwise.studies.runner.work import Environment

_PROBING = 120.0  # seconds that a dry run of a study may measure in all

_NAMED = "classwise.study"  # which study is asked about
_USED, _RESOURCES = "What is used", "Resources"  # panels of the help

#: Options of a study that are not fields of it are errors; everything after its name is read by `_options`.
STUDY_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options of every study: where and on what its jobs run. They change nothing in its results."""

    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder; the same command resumes where it stopped. Default: runs/NAME."),
    ] = None
    root: Annotated[
        Path | None, typer.Option("--root", help="Where data sets are. Default: data.", rich_help_panel=_USED)
    ] = None
    download: Annotated[
        bool, typer.Option("--download", help="Download data sets that are not there.", rich_help_panel=_USED)
    ] = False
    device: Annotated[
        str | None,
        typer.Option("--device", help="cpu, cuda, mps; by default the best available.", rich_help_panel=_RESOURCES),
    ] = None
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Load files that run code: programs, checkpoints that name a Python file.",
            rich_help_panel=_USED,
        ),
    ] = False
    engine: Annotated[
        str,
        typer.Option(
            "--engine", help="local, ray, ray://HOST:PORT, slurm or slurm:partition=….", rich_help_panel=_RESOURCES
        ),
    ] = "local"
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", help="Jobs at once, each in its own process (local).", rich_help_panel=_RESOURCES),
    ] = 1
    shards: Annotated[
        int,
        typer.Option("--shards", help="Divide every audit among this many jobs.", rich_help_panel=_RESOURCES),
    ] = 1
    cpus: Annotated[
        int | None,
        typer.Option("--cpus", help="CPU cores for each job. Default: shared evenly.", rich_help_panel=_RESOURCES),
    ] = None
    gpus: Annotated[
        float, typer.Option("--gpus", help="GPUs for each job (ray, slurm).", rich_help_panel=_RESOURCES)
    ] = 0.0
    retries: Annotated[
        int,
        typer.Option(
            "--retries", help="How often a job whose process died is tried again.", rich_help_panel=_RESOURCES
        ),
    ] = 2
    use: Annotated[
        list[str] | None,
        typer.Option(
            "--use", help="JOB=FOLDER: use a finished run folder for a job; repeatable.", rich_help_panel=_USED
        ),
    ] = None
    pool: Annotated[
        Path | None,
        typer.Option(
            "--pool",
            help="A folder of jobs that studies share: a model trained by one study is reused by the others.",
            rich_help_panel=_USED,
        ),
    ] = None
    zoo: Annotated[
        bool,
        typer.Option(
            "--zoo/--no-zoo",
            help="Take models that the zoo has of the same recipe and seed, or train them.",
            rich_help_panel=_USED,
        ),
    ] = True
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the jobs with estimated times, and exit.")] = False
    progress: Annotated[bool | None, typer.Option("--progress/--no-progress", help="Show progress; by default on a terminal.")] = None  # fmt: skip

    @property
    def environment(self) -> Environment:
        from classwise.studies.runner.work import Environment

        root = None if self.root is None else str(self.root)
        return Environment(root=root, download=self.download, device=self.device, trust=self.trust)

    @property
    def resources(self) -> Resources:
        from classwise.dispatch import Resources

        return Resources(self.jobs, self.cpus, self.gpus, self.retries)

    @property
    def given(self) -> dict[str, Path]:
        """``--use trades=runs/trades`` as {"trades": runs/trades}."""
        pairs = (text.partition("=")[::2] for text in self.use or [])
        return {name: Path(folder).expanduser() for name, folder in pairs}


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Common` besides its own; it gets them as `common`."""
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "common"]
    hints = typing.get_type_hints(Common, include_extras=True)
    more = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in dataclasses.fields(Common)
    ]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        common = Common(**{one.name: given.pop(one.name) for one in more})
        command(**given, common=common)

    vars(call)["__signature__"] = inspect.Signature([*own, *more])
    call.__annotations__ = {one.name: one.annotation for one in (*own, *more)}
    return call


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
    counted: Mapping[str, float | None] | None = None,
    budget: float = _PROBING,
) -> None:
    """Print the jobs of a study and about how long each takes."""
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
            counted=counted,
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
        console.print(
            f"[{styles.get(claim.verdict, 'yellow')}]{claim.verdict}[/]: {escape(claim.text)} "
            f"[dim]{escape(claim.numbers)} ({escape(claim.source)}; test: {escape(claim.test)})[/]",
            soft_wrap=True,
        )
    page = study_page.build(folder, StudyFolder(folder).html)
    console.print(f"\nall of it: {page} (as text: {StudyFolder(folder).page})", markup=False, soft_wrap=True)
