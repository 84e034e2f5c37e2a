"""The options that every study, and reproduce, takes besides its own."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from classwise.dispatch import Resources
    from classwise.studies.runner.work import Environment

_USED, _RESOURCES = "What is used", "Resources"  # panels of the help


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
