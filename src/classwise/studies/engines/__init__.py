"""Where the jobs of a study run: in this process, in several, on a Ray cluster, or under SLURM.

An engine is a context that gives `submit(name) -> Future`; the graph says what may be submitted. There is no other
scheduler here: how many run at once, on which machine, and what is tried again, the engine's own machinery decides.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from classwise.errors import UserError, unknown
from classwise.studies.work import Desk

Future: TypeAlias = "concurrent.futures.Future[None]"
Submit: TypeAlias = Callable[[str], Future]


@dataclass(frozen=True)
class Resources:
    """What each job may use, and how many run at once where the engine is ours to fill."""

    jobs: int = 1
    cpus: int | None = None
    gpus: float = 0.0
    retries: int = 2


def names() -> list[str]:
    """Every engine there is."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def engine(spec: str, desk: Desk, resources: Resources) -> AbstractContextManager[Submit]:
    """The engine of that name; what follows a colon is its own affair (``ray``, ``ray://host:10001``)."""
    name = spec.partition(":")[0]
    if name not in names():
        raise unknown("engine", name, names())
    opened: AbstractContextManager[Submit] = importlib.import_module(f"{__name__}.{name}").opened(spec, desk, resources)
    return opened


def drive(desk: Desk, submit: Submit) -> Iterator[str]:
    """Have every job done, each after those it needs; give the name of each as it is finished.

    A job that fails holds up only those that need it; what failed is said when nothing more can be done.
    """
    over = [job.name for job in desk.graph if desk.finished(job) is not None]
    order = desk.graph.waiting(over)
    running: dict[Future, str] = {}
    failed: dict[str, BaseException] = {}
    while True:
        for name in order.get_ready():
            running[submit(name)] = name
        if not running:
            break
        finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in finished:
            name = running.pop(future)
            error = future.exception()
            if error is not None:
                failed[name] = error
                continue
            order.done(name)
            yield name
    if failed:
        lines = [f"  {name}: {error}" for name, error in failed.items()]
        raise UserError(
            f"{len(failed)} of {len(desk.graph)} jobs failed:\n" + "\n".join(lines) + "\n"
            "What is finished is kept; the same command goes on."
        )
