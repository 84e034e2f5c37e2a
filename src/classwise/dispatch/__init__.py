"""Where work runs: in this process, in several, on a Ray cluster, under SLURM, or by torchrun.

An engine is a context that gives `submit(call) -> Future`; who submits says what may run when. There is no other
scheduler here: the engine decides how many calls run at once, on which machine, and what is retried. The result of a
future is the call's error message, or None; an exception is an error of the engine itself.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from classwise.core.errors import UserError, unknown

Future: TypeAlias = "concurrent.futures.Future[str | None]"


@dataclass(frozen=True)
class Call:
    """A piece of work that any process on any machine can do.

    function: ``package.module:name``; it returns an error message, or None. arguments: plain values, as JSON has them.
    log: where what a process of its own prints is kept.
    """

    name: str
    function: str
    arguments: tuple[Any, ...]
    log: Path


Submit: TypeAlias = Callable[[Call], Future]


@dataclass(frozen=True)
class Resources:
    """What each call may use, and how many run at once in the local engine.

    devices: the GPUs of this host that local processes are given, one each, by their numbers.
    """

    jobs: int = 1
    cpus: int | None = None
    gpus: float = 0.0
    retries: int = 2
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("jobs", 1), ("cpus", 1), ("gpus", 0), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"--{name} must be at least {least}, got {value}.")

    @property
    def threads(self) -> int:
        """Threads of each call: as given, or its share of this machine."""
        return self.cpus or max(1, (os.cpu_count() or 1) // self.jobs)


def names() -> list[str]:
    """The engines."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "call")


def engine(spec: str, folder: Path, resources: Resources, most: int) -> AbstractContextManager[Submit]:
    """The engine of that name; what follows a colon is passed to it (``ray``, ``ray://host:10001``).

    folder: where an engine keeps files of its own. most: how many calls there will be at most.
    """
    name = spec.partition(":")[0]
    if name not in names():
        raise unknown("engine", name, names())
    opened: Callable[..., AbstractContextManager[Submit]] = importlib.import_module(f"{__name__}.{name}").opened
    return opened(spec, folder, resources, most)


def failures(futures: dict[Future, str]) -> dict[str, str]:
    """Wait for all; the errors of those that failed, by name."""
    failed = {}
    for future, name in futures.items():
        error = future.exception()
        wrong = future.result() if error is None else f"{type(error).__name__}: {error}"
        if wrong is not None:
            failed[name] = wrong
    return failed
