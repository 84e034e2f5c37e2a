"""A Ray cluster: each job is a task with its CPUs and GPUs, retried on another worker if one dies.

    ray                        a new Ray on this machine, with room for --jobs at once
    ray://HOST:10001           a cluster, through Ray's client
    ray:auto, ray:HOST:6379    the cluster that this machine belongs to

Workers need classwise installed, and must reach the study's folder and the data by the same path as here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.extras import package
from classwise.studies.runner.engines import Resources, Submit
from classwise.studies.runner.work import Workspace, attempt


@contextlib.contextmanager
def opened(spec: str, workspace: Workspace, resources: Resources) -> Iterator[Submit]:
    """Connect, or begin a local Ray; a connection that the caller already has is used and left open."""
    ray = package("ray", "--engine ray needs")
    address = spec if spec.startswith("ray://") else spec.partition(":")[2] or None
    cpus = resources.threads if address is None else resources.cpus or 1
    with _connected(ray, address, cpus * resources.jobs):
        needs = {"num_cpus": cpus, "num_gpus": resources.gpus}
        task = ray.remote(**needs, max_retries=resources.retries, retry_exceptions=False)(_work)
        started: list[Any] = []

        def submit(name: str) -> Any:
            started.append(task.options(name=name).remote(str(workspace.folder), name, cpus, str(Path.cwd())))
            return started[-1].future()

        try:
            yield submit
        except BaseException:  # as Ctrl-C would: a training saves what it has
            for reference in started:
                with contextlib.suppress(Exception):
                    ray.cancel(reference)
            if started:
                ray.wait(started, num_returns=len(started), timeout=_TO_SAVE)
            raise


_TO_SAVE = 30.0  # seconds that jobs have to stop before their workers are ended


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, cpus: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    own = {"num_cpus": cpus, "include_dashboard": False} if address is None else {}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"no Ray answers at {address or 'this machine'}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _work(folder: str, name: str, threads: int, where: str) -> str | None:
    """Run the job in a worker, from the folder in which the study was started if the worker has it."""
    if os.path.isdir(where):
        os.chdir(where)
    return attempt(folder, name, threads)
