"""This process, one job after the other; or, with more jobs at once, a process for each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from classwise.core.errors import UserError
from classwise.core.run_folder import RunFolder
from classwise.studies.runner.engines import Resources, Submit
from classwise.studies.runner.work import Workspace

_TO_SAVE = 30.0  # seconds that jobs have to stop before they are killed


@contextlib.contextmanager
def opened(spec: str, workspace: Workspace, resources: Resources) -> Iterator[Submit]:
    """In this process if one job runs at once, else each in its own with its share of the threads."""
    if spec != "local":
        raise UserError(f"--engine {spec!r}: local takes nothing after a colon; give --jobs and --cpus instead.")
    if resources.jobs <= 1:
        yield lambda name: _now(workspace, name)
        return
    children = _Children()
    with ThreadPoolExecutor(resources.jobs) as pool:
        try:
            yield lambda name: pool.submit(children.run, workspace, name, resources)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


def _now(workspace: Workspace, name: str) -> Future[str | None]:
    future: Future[str | None] = Future()
    future.set_result(workspace.attempt(name))
    return future


class _Children:
    """The processes that run jobs, so that all can be stopped with the study."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._stopped = Lock(), False

    def run(self, workspace: Workspace, name: str, resources: Resources) -> str | None:
        """Run one job in a new process; one that was killed is retried, one that failed is not."""
        log = RunFolder(workspace.folder_of(name)).log_file
        for _ in range(resources.retries + 1):
            status = self._once(workspace, name, log, resources.threads)
            if status == 0:
                return None
            if self._stopped:
                return "stopped"
            if status > 0:
                return _last_error(log)
        return f"its process was killed {resources.retries + 1} times; see {log}"

    def _once(self, workspace: Workspace, name: str, log: Path, threads: int) -> int:
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "classwise.studies.runner.work", str(workspace.folder), name, str(os.getpid())]
        with log.open("ab") as sink:
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


def _last_error(log: Path) -> str:
    """The error that a job ended with, or the last line it wrote."""
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    _, found, words = f"\n{text}".rpartition("\nerror: ")
    return words if found else f"{text.splitlines()[-1] if text else 'no output'} (see {log})"
