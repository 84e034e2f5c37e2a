"""The commands study and reproduce: wiring only."""

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

from classwise.core.errors import UserError, unknown
from classwise.core.stopping import exit_code

if TYPE_CHECKING:
    from classwise.studies import Study, StudyResult
    from classwise.studies.reproduction.reproduce import ReproductionPlan as ReproductionPlan

_PROBING = 120.0  # seconds that a dry run of a study may measure in all

_NAMED = "classwise.study"  # which study is asked about

#: Options of a study that are not fields of it are errors; everything after its name is read by `_options`.
STUDY_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder; the same command goes on after a kill. [default: runs/NAME]")
]
Root = Annotated[Path | None, typer.Option("--root", help="Where data sets are. [default: data]")]
Download = Annotated[bool, typer.Option("--download", help="Fetch data sets that are not there.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, mps. [default: the best there is]")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Load files that run code: programs, checkpoints that name a Python file.")
]
Engine = Annotated[str, typer.Option("--engine", help="local, ray, ray://HOST:PORT, slurm or slurm:partition=….")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Jobs at once, each in its own process (local).")]
Cpus = Annotated[int | None, typer.Option("--cpus", help="CPU cores for each job. [default: shared evenly]")]
Gpus = Annotated[float, typer.Option("--gpus", help="GPUs for each job (ray, slurm).")]
Retries = Annotated[int, typer.Option("--retries", help="How often a job whose process died is tried again.")]
Use = Annotated[
    list[str] | None, typer.Option("--use", help="JOB=FOLDER: take a finished run folder over; repeatable.")
]
Pool = Annotated[
    Path | None,
    typer.Option("--pool", help="A folder of jobs that studies share: what one has trained another need not."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the jobs and about how long each takes, and leave.")]
ShowProgress = Annotated[bool | None, typer.Option("--progress/--no-progress", help="[default: on a terminal]")]


def study(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which study; see: classwise list studies.")],
    out: Out = None,
    root: Root = None,
    download: Download = False,
    device: Device = None,
    trust: Trust = False,
    engine: Engine = "local",
    jobs: Jobs = 1,
    cpus: Cpus = None,
    gpus: Gpus = 0.0,
    retries: Retries = 2,
    use: Use = None,
    pool: Pool = None,
    dry_run: DryRun = False,
    progress: ShowProgress = None,
) -> None:
    """Do a study: its trainings and audits, then its tables, figures and verdicts.

    A study's own options come with it: --model, --recipe, --set, --per-class, --attack, … See: classwise study NAME
    --help.
    """
    from classwise import studies

    given = _options(context.args, name)
    _check_known(given, name, context)
    chosen = studies.parse(name, given)
    environment, resources = _where(root, download, device, trust, jobs, cpus, gpus, retries)
    folder = out or Path("runs") / name
    if dry_run:
        _show_plan(chosen, folder, environment, resources, _given(use), pool)
        return
    result = _run(chosen, folder, environment, engine, resources, _given(use), pool, progress)
    _finish(result, folder, chosen.title, dataclasses.asdict(chosen))


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure, e.g. tian2021:table1; see --list.")] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="desk: small models, on two CPU cores; paper: the papers' own.")
    ] = "desk",
    listed: Annotated[
        bool, typer.Option("--list", help="Every table and figure, and what each costs here at both scales.")
    ] = False,
    out: Out = None,
    root: Root = None,
    download: Download = False,
    device: Device = None,
    trust: Trust = False,
    engine: Engine = "local",
    jobs: Jobs = 1,
    cpus: Cpus = None,
    gpus: Gpus = 0.0,
    retries: Retries = 2,
    use: Use = None,
    pool: Pool = None,
    dry_run: DryRun = False,
    progress: ShowProgress = None,
) -> None:
    """Make a table or figure of a paper again, the printed numbers beside the measured ones."""
    from classwise.studies.reproduction import reproduce as reproductions

    if listed:
        _show_list()
        return
    if name is None:
        raise UserError("which table or figure? classwise reproduce --list names them, e.g. tian2021:table1.")
    plan = reproductions.plan(name, scale)
    environment, resources = _where(root, download, device, trust, jobs, cpus, gpus, retries)
    above = Path("runs") / "reproduce" / scale
    folder, pool = out or above / name.replace(":", "-"), pool or above / "jobs"
    if dry_run:
        _show_reproduction(plan, folder, environment, resources, _given(use), pool)
        return
    result = _run(plan.study, folder, environment, engine, resources, _given(use), pool, progress)
    title = f"{plan.item.title} ({name}, {scale} scale)"
    _finish(reproductions.with_printed_numbers(plan, result), folder, title, {"paper": plan.item.citation})


def _show_list() -> None:
    """Every table and figure, paper by paper, and what it costs here."""
    from itertools import groupby

    from rich.table import Table

    from classwise import published
    from classwise.studies.reproduction import reproduce as reproductions

    console = Console()
    scales: tuple[reproductions.Scale, ...] = ("desk", "paper")
    for _, items in groupby(published.items(), key=lambda item: item.paper):
        table = Table(box=None, pad_edge=False)
        for column in ("id", "what", "study", *scales):
            table.add_column(column, justify="right" if column in scales else "left", no_wrap=column != "what")
        for item in items:
            prices = [reproductions.hours(reproductions.plan(item.id, scale)) for scale in scales] if item.study else []
            table.add_row(item.id, escape(item.title), item.study or "", *map(_duration, prices))
        console.print(f"[bold]{escape(item.citation)}[/]", soft_wrap=True)
        console.print(table)
        console.print()
    console.print("Times are counted for this machine, to a factor of two.", style="dim")


def _show_reproduction(
    plan: ReproductionPlan, folder: Path, environment: Any, resources: Any, use: Mapping[str, Path], pool: Path | None
) -> None:
    """The jobs of a plan at the price that is counted for them, and what is not as in the paper."""
    from classwise.studies.reproduction import cost
    from classwise.studies.runner.graph import Graph

    counted = cost.seconds(Graph.of(plan.study.jobs()))
    _show_plan(plan.study, folder, environment, resources, use, pool, counted=counted, budget=0.0)
    console = Console()
    console.print("Times are counted, to a factor of two.", style="dim")
    if plan.differs:
        console.print("\nNot as in the paper:")
    for sentence in plan.sentences:
        console.print(f"  {sentence}", markup=False, soft_wrap=True)


def _duration(hours: float | None) -> str:
    if hours is None:
        return "?"
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:,.0f} days"


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


def _where(
    root: Path | None,
    download: bool,
    device: str | None,
    trust: bool,
    jobs: int,
    cpus: int | None,
    gpus: float,
    retries: int,
) -> tuple[Any, Any]:
    from classwise.studies.runner.engines import Resources
    from classwise.studies.runner.work import Environment

    environment = Environment(root=None if root is None else str(root), download=download, device=device, trust=trust)
    return environment, Resources(jobs, cpus, gpus, retries)


def _given(use: list[str] | None) -> dict[str, Path]:
    """``--use trades=runs/trades`` as {"trades": runs/trades}."""
    pairs = (text.partition("=")[::2] for text in use or [])
    return {name: Path(folder).expanduser() for name, folder in pairs}


def _run(
    chosen: Study,
    folder: Path,
    environment: Any,
    engine: str,
    resources: Any,
    use: Mapping[str, Path],
    pool: Path | None,
    progress: bool | None,
) -> StudyResult:
    from classwise.studies.runner.study import run_jobs

    with _watching(progress) as watch:
        try:
            return run_jobs(
                chosen,
                folder,
                environment=environment,
                engine_spec=engine,
                resources=resources,
                use=use,
                pool=pool,
                watch=watch,
            )
        except KeyboardInterrupt as stop:
            Console(stderr=True).print(f"stopped; the same command resumes in {escape(str(folder))}.", soft_wrap=True)
            raise typer.Exit(exit_code(stop)) from None


@contextlib.contextmanager
def _watching(wanted: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    """A bar of jobs on a terminal, else a line for each finished one."""
    from classwise.show.terminal import interactive

    console = Console(stderr=True)
    if not (interactive(console) if wanted is None else wanted):
        yield lambda name, number, total: console.print(f"{number} of {total}: {name}", markup=False, soft_wrap=True)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("jobs", total=None)
        yield lambda name, number, total: bars.update(task, description=name, completed=number, total=total)


def _show_plan(
    chosen: Study,
    folder: Path,
    environment: Any,
    resources: Any,
    use: Mapping[str, Path],
    pool: Path | None,
    counted: Mapping[str, float | None] | None = None,
    budget: float = _PROBING,
) -> None:
    from classwise.studies.runner.estimate import estimate, show
    from classwise.studies.runner.graph import Graph
    from classwise.studies.runner.study import check_given
    from classwise.studies.runner.work import Workspace

    workspace = Workspace(folder, Graph.of(chosen.jobs()), environment, pool)
    for name, given in use.items():
        check_given(workspace, name, given)
    with Console(stderr=True).status("planning …") as status:
        found = estimate(
            workspace,
            resources,
            given=use,
            budget=budget,
            counted=counted,
            watch=lambda name: status.update(f"measuring {escape(name)} …"),
        )
    show(found, resources)


def _finish(result: StudyResult, folder: Path, title: str, settings: Mapping[str, object]) -> None:
    """Write what a study came to, and show it."""
    from classwise.show import tables
    from classwise.studies.runner.result import shown, words, write

    write(result, folder, title, settings)
    console = Console()
    for name, frame in result.tables.items():
        console.print(f"\n[bold]{escape(name.replace('_', ' '))}[/]")
        for piece in tables.terminal(shown(frame), words(frame), console.width, most=40):
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
    console.print(f"\nall of it: {folder}/study.md", markup=False, soft_wrap=True)
