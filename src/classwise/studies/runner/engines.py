"""The jobs of a study on an engine (`classwise.dispatch`), each after those it needs."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from classwise import dispatch
from classwise.core.errors import UserError
from classwise.core.run_folder import RunFolder
from classwise.dispatch import Call, Future, Resources
from classwise.studies.runner.work import Workspace

Submit: TypeAlias = Callable[[str], Future]


def engine(spec: str, workspace: Workspace, resources: Resources) -> AbstractContextManager[Submit]:
    """The engine of that name, to which jobs are submitted by theirs."""
    if spec.partition(":")[0] == "torchrun":
        raise UserError("--engine torchrun starts the processes of one audit; for a study: local, ray or slurm.")
    return _by_name(workspace, dispatch.engine(spec, workspace.folder, resources, len(workspace.graph)))


@contextlib.contextmanager
def _by_name(workspace: Workspace, opening: AbstractContextManager[dispatch.Submit]) -> Iterator[Submit]:
    with opening as submit:

        def job(name: str) -> Future:
            log = RunFolder(workspace.folder_of(name)).log_file
            return submit(Call(name, "classwise.studies.runner.work:attempt", (str(workspace.folder), name), log))

        yield job


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
