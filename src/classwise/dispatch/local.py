"""This process, one call after the other; or, with more jobs at once, a process for each, on a GPU of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write_text
from classwise.dispatch import Call, Resources, Submit
from classwise.dispatch.call import do

_TO_SAVE = 30.0  # seconds that jobs have to stop before they are killed


@contextlib.contextmanager
def opened(spec: str, folder: Path, resources: Resources, most: int) -> Iterator[Submit]:
    """In this process if one job runs at once, else each in its own with its share of the threads and GPUs."""
    if spec != "local":
        raise UserError(f"--engine {spec!r}: local takes nothing after a colon; give --jobs and --cpus instead.")
    if resources.jobs <= 1:
        yield _now
        return
    children = _Children(resources)
    with ThreadPoolExecutor(resources.jobs) as pool:
        try:
            yield lambda call: pool.submit(children.run, call)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


def _now(call: Call) -> Future[str | None]:
    future: Future[str | None] = Future()
    future.set_result(do(call.function, call.arguments))
    return future


class _Children:
    """The processes that do the calls, so that all can be stopped together."""

    def __init__(self, resources: Resources) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._stopped = Lock(), False
        self._resources, self._free = resources, [*resources.devices]

    def run(self, call: Call) -> str | None:
        """Do a call in a new process; one that was killed is retried, one that failed is not."""
        device = self._free.pop() if self._free else None
        try:
            for _ in range(self._resources.retries + 1):
                status = self._once(call, device)
                if status == 0:
                    return None
                if self._stopped:
                    return "stopped"
                if status > 0:
                    return last_error(call.log)
            return f"its process was killed {self._resources.retries + 1} times; see {call.log}"
        finally:
            if device is not None:
                self._free.append(device)

    def _once(self, call: Call, device: str | None) -> int:
        call.log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(self._resources.threads)
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environment |= {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        arguments = call.log.with_name(f".{call.log.name}.json")  # they may be longer than a command can be
        atomic_write_text(arguments, json.dumps(call.arguments))
        command = [sys.executable, "-m", "classwise.dispatch.call", str(os.getpid()), call.function, str(arguments)]
        with call.log.open("ab") as sink:
            with self._lock:
                if self._stopped:
                    return 1
                # In a session (on Windows: a group) of its own: Ctrl-C reaches this process alone, which then asks each
                # child once. (A training exits without saving at a second signal.)
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment,
                    start_new_session=True, creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )  # fmt: skip
                self._running.add(child)
            try:
                return child.wait()
            finally:
                arguments.unlink(missing_ok=True)
                with self._lock:
                    self._running.discard(child)

    def stop(self) -> None:
        """Ask every child to end, and end those that have not after a while."""
        with self._lock:
            self._stopped = True
            asked = [*self._running]
        for child in asked:
            child.terminate()
        end = time.monotonic() + _TO_SAVE
        try:
            for child in asked:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, end - time.monotonic()))
        finally:  # also when a second signal comes
            for child in asked:
                child.kill()  # does nothing to one that has ended


def last_error(log: Path) -> str:
    """The error that a job ended with, or the last line it wrote."""
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    _, found, words = f"\n{text}".rpartition("\nerror: ")
    return words if found else f"{text.splitlines()[-1] if text else 'no output'} (see {log})"
