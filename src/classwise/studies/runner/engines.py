"""The jobs of a study on an engine (`classwise.dispatch`), each after those it needs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from classwise import dispatch
from classwise.core.errors import UserError
from classwise.core.run_folder import RunFolder
from classwise.dispatch import Call, Future, Resources
from classwise.studies.runner.graph import AuditJob
from classwise.studies.runner.work import Workspace

Submit: TypeAlias = Callable[[str], Future]
_ATTEMPT = "classwise.studies.runner.work:attempt"


def engine(spec: str, workspace: Workspace, resources: Resources, shards: int = 1) -> AbstractContextManager[Submit]:
    """The engine of that name, to which jobs are submitted by theirs.

    shards: calls among which each audit is divided.
    """
    if spec.partition(":")[0] == "torchrun":
        raise UserError("--engine torchrun starts the processes of one audit; for a study: local, ray or slurm.")
    if shards < 1:
        raise UserError(f"--shards must be at least 1, got {shards}.")
    most = len(workspace.graph) * shards
    return _by_name(workspace, dispatch.engine(spec, workspace.folder, resources, most), shards)


@contextlib.contextmanager
def _by_name(workspace: Workspace, opening: AbstractContextManager[dispatch.Submit], shards: int) -> Iterator[Submit]:
    with opening as submit:

        def job(name: str) -> Future:
            run, own = RunFolder(workspace.folder_of(name)), (str(workspace.folder), name)
            if shards == 1 or not isinstance(workspace.graph.jobs[name], AuditJob):
                return submit(Call(name, _ATTEMPT, own, run.log_file))
            calls = []
            for number in range(1, shards + 1):
                log = run.path / "logs" / f"shard-{number}-of-{shards}.txt"
                calls.append(Call(f"{name}-{number}", _ATTEMPT, (*own, f"{number}/{shards}"), log))
            return _all([submit(call) for call in calls])

        yield job


def _all(futures: Sequence[Future]) -> Future:
    """One future of several: the first error of any, when all are done."""
    whole: Future = concurrent.futures.Future()
    left, alone = len(futures), threading.Lock()

    def one_is_done(_: Future) -> None:
        nonlocal left
        with alone:
            left -= 1
            if left:
                return
        wrong = dispatch.failures({future: str(number) for number, future in enumerate(futures, 1)})
        whole.set_result(next(iter(wrong.values()), None))

    for future in futures:
        future.add_done_callback(one_is_done)
    return whole


def drive(workspace: Workspace, submit: Submit, at_once: int | None = None) -> Iterator[str]:
    """Run every job after those it needs, and yield the name of each finished one.

    A job that fails blocks only those that need it; failures are reported when nothing more can be done.
    at_once: how many are submitted at a time, each time the first of the study that can start; by default all that can.
    """
    place = {name: number for number, name in enumerate(workspace.graph.jobs)}
    most = len(place) if at_once is None else at_once
    over = [job.name for job in workspace.graph if workspace.finished(job) is not None]
    order = workspace.graph.waiting(over)
    ready: list[tuple[int, str]] = []
    running: dict[Future, str] = {}
    failed: dict[str, str] = {}
    while True:
        for name in order.get_ready():
            heapq.heappush(ready, (place[name], name))
        if ready and len(running) < most:
            _, name = heapq.heappop(ready)
            running[submit(name)] = name
        elif not running:
            break
        # An engine may run the job while it is submitted: report what is finished before the next begins.
        patience = 0 if ready and len(running) < most else None
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
