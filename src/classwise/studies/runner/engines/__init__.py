"""Where the jobs of a study run: in this process, in several, on a Ray cluster, or under SLURM.

An engine is a context that gives `submit(name) -> Future`; the graph says what may be submitted. There is no other
scheduler here: the engine decides how many jobs run at once, on which machine, and what is retried. The result of a
future is the job's error message, or None; an exception is an error of the engine itself.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import pkgutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from classwise.core.errors import UserError, unknown
from classwise.studies.runner.work import Workspace

Future: TypeAlias = "concurrent.futures.Future[str | None]"
Submit: TypeAlias = Callable[[str], Future]


@dataclass(frozen=True)
class Resources:
    """What each job may use, and how many run at once in the local engine."""

    jobs: int = 1
    cpus: int | None = None
    gpus: float = 0.0
    retries: int = 2

    def __post_init__(self) -> None:
        for name, least in (("jobs", 1), ("cpus", 1), ("gpus", 0), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"--{name} must be at least {least}, got {value}.")

    @property
    def threads(self) -> int:
        """Threads of each job: as given, or its share of this machine."""
        return self.cpus or max(1, (os.cpu_count() or 1) // self.jobs)


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def engine(spec: str, workspace: Workspace, resources: Resources) -> AbstractContextManager[Submit]:
    """The engine of that name; what follows a colon is passed to it (``ray``, ``ray://host:10001``)."""
    name = spec.partition(":")[0]
    if name not in names():
        raise unknown("engine", name, names())
    opened: Callable[..., AbstractContextManager[Submit]] = importlib.import_module(f"{__name__}.{name}").opened
    return opened(spec, workspace, resources)


def drive(workspace: Workspace, submit: Submit) -> Iterator[str]:
    """Run every job after those it needs, and yield the name of each finished one.

    A job that fails blocks only those that need it; failures are reported when nothing more can be done.
    """
    over = [job.name for job in workspace.graph if workspace.finished(job) is not None]
    order = workspace.graph.waiting(over)
    ready: deque[str] = deque()
    running: dict[Future, str] = {}
    failed: dict[str, str] = {}
    while True:
        ready.extend(order.get_ready())
        if ready:
            name = ready.popleft()
            running[submit(name)] = name
        elif not running:
            break
        # An engine may run the job while it is submitted: report what is finished before the next begins.
        patience = 0 if ready else None
        finished, _ = concurrent.futures.wait(running, patience, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in finished:
            name = running.pop(future)
            error = future.exception()
            wrong = future.result() if error is None else f"{type(error).__name__}: {error}"
            if wrong is not None:
                failed[name] = wrong
                continue
            order.done(name)
            yield name
    if failed:
        lines = [f"  {name}: {wrong}" for name, wrong in failed.items()]
        raise UserError(
            f"{len(failed)} of {len(workspace.graph)} jobs failed:\n" + "\n".join(lines) + "\n"
            "What is finished is kept; the same command resumes."
        )
