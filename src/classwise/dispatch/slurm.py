"""SLURM, through submitit: each call is a batch job, queued when it may run.

    slurm                                   the cluster's defaults, four hours for each job
    slurm:partition=gpu,time=240,qos=long   time in minutes; everything else is an option of sbatch by its own name
    slurm:cluster=local                     submitit's replacement: processes on this machine, for testing

A job that runs out of time, or is preempted, is queued again and resumes from what it has saved. What submitit
writes (scripts, logs) is in the run folder below ``slurm``. All nodes must reach that folder by the same path.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core import spec as specs
from classwise.core.errors import UserError
from classwise.dispatch import Call, Resources, Submit
from classwise.dispatch.call import do

_MINUTES = 240
_MOST_TIMEOUTS = 100  # each time a job has made progress: a long training may need many
_POLL = 2.0  # seconds; submitit itself asks the queue less and less often


@contextlib.contextmanager
def opened(spec: str, folder: Path, resources: Resources, most: int) -> Iterator[Submit]:
    """Submit through submitit, and wait; when this process is stopped, so are its jobs."""
    executor = _executor(spec, folder, resources)
    jobs: list[Any] = []
    stopped = threading.Event()

    def submit(call: Call) -> Any:
        executor.update_parameters(name=f"classwise-{call.name}")
        jobs.append(executor.submit(_Work(call.function, call.arguments, resources.cpus or 1, str(Path.cwd()))))
        return pool.submit(_wait, jobs[-1], stopped)

    with ThreadPoolExecutor(max(most, 1)) as pool:  # a waiting thread for each
        try:
            yield submit
        except BaseException:
            stopped.set()
            for job in jobs:
                if not job.done():
                    job.cancel(check=False)
            raise


def _executor(spec: str, folder: Path, resources: Resources) -> Any:
    try:
        submitit = importlib.import_module("submitit")
    except ModuleNotFoundError:
        raise UserError('--engine slurm needs the package submitit: pip install "classwise[slurm]"') from None
    options = specs.split(spec)[1]
    cluster = options.pop("cluster", "slurm")
    minutes = specs.convert(options.pop("time", _MINUTES), int, "time (minutes)")
    timeouts = {f"{kind}_max_num_timeout": _MOST_TIMEOUTS for kind in ("slurm", "local")}
    try:
        executor = submitit.AutoExecutor(folder=folder / "slurm", cluster=cluster, **timeouts)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"submitit cannot use the cluster {cluster!r}: {error} On a machine without SLURM, slurm:cluster=local "
            "tries the same with processes here."
        ) from error
    executor.update_parameters(
        timeout_min=minutes,
        cpus_per_task=resources.cpus or 1,
        gpus_per_node=math.ceil(resources.gpus),
        slurm_additional_parameters={key.replace("_", "-"): value for key, value in options.items()},
    )
    return executor


def _wait(job: Any, stopped: threading.Event) -> str | None:
    """The error of a submitted job, once it has ended."""
    while not job.done():
        if stopped.wait(_POLL):
            return "stopped"
    wrong: str | None = job.result()
    return wrong


@dataclass(frozen=True)
class _Work:
    """What a batch job does; submitit calls `checkpoint` when its time is up, and queues what that gives."""

    function: str
    arguments: tuple[Any, ...]
    threads: int
    where: str

    def __call__(self) -> str | None:
        return do(self.function, self.arguments, self.threads, self.where)

    def checkpoint(self) -> Any:
        """The same job again, which resumes from what it has saved."""
        return importlib.import_module("submitit.helpers").DelayedSubmission(self)
