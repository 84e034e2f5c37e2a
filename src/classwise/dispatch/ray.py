"""A Ray cluster: each call is a task with its CPUs and GPUs, retried on another worker if one dies.

    ray                        a new Ray on this machine, with room for --jobs at once
    ray://HOST:10001           a cluster, through Ray's client
    ray:auto, ray:HOST:6379    the cluster that this machine belongs to

Workers need classwise installed, and must reach the run folder and the data by the same path as here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.extras import package
from classwise.dispatch import Call, Resources, Submit
from classwise.dispatch.call import do


@contextlib.contextmanager
def opened(spec: str, folder: Path, resources: Resources, most: int) -> Iterator[Submit]:
    """Connect, or begin a local Ray; a connection that the caller already has is used and left open."""
    ray = package("ray", "--engine ray needs")
    address = spec if spec.startswith("ray://") else spec.partition(":")[2] or None
    cpus = resources.threads if address is None else resources.cpus or 1
    with _connected(ray, address, cpus * resources.jobs):
        needs = {"num_cpus": cpus, "num_gpus": resources.gpus}
        task = ray.remote(**needs, max_retries=resources.retries, retry_exceptions=False)(do)
        started: list[Any] = []

        def submit(call: Call) -> Any:
            started.append(task.options(name=call.name).remote(call.function, call.arguments, cpus, str(Path.cwd())))
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


def at_once(resources: Resources) -> int:
    """How many calls the cluster has room for at once, of those that are connected."""
    ray = package("ray", "--engine ray needs")
    there = ray.cluster_resources()
    fits = int(there.get("CPU", 1) // (resources.cpus or 1))
    return max(min(fits, int(there.get("GPU", 0) / resources.gpus)) if resources.gpus else fits, 1)


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
