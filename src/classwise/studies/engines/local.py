"""This process, one job after the other; or, with more jobs at once, a process for each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from classwise.studies.engines import Resources, Submit
from classwise.studies.work import Desk


@contextlib.contextmanager
def opened(spec: str, desk: Desk, resources: Resources) -> Iterator[Submit]:
    """In this process if one job runs at once, else each in its own with its share of the threads."""
    if resources.jobs <= 1:
        yield lambda name: _now(desk, name)
        return
    children = _Children()
    with ThreadPoolExecutor(resources.jobs) as pool:
        try:
            yield lambda name: pool.submit(children.run, desk, name, resources)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


def _now(desk: Desk, name: str) -> Future[None]:
    future: Future[None] = Future()
    try:
        desk.do(name)
        future.set_result(None)
    except Exception as error:
        future.set_exception(error)
    return future


class _Children:
    """The processes that do jobs, so that all can be stopped when the study is."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._stopped = Lock(), False

    def run(self, desk: Desk, name: str, resources: Resources) -> None:
        """Do one job in a new process; one that was killed is tried again, one that failed is not."""
        log = desk.folder_of(name) / "log.txt"
        for _ in range(resources.retries + 1):
            status = self._once(desk, name, log, resources)
            if status == 0:
                return
            if status > 0 or self._stopped:
                raise RuntimeError(_last_words(log))
        raise RuntimeError(f"its process was killed {resources.retries + 1} times; see {log}")

    def _once(self, desk: Desk, name: str, log: Path, resources: Resources) -> int:
        log.parent.mkdir(parents=True, exist_ok=True)
        threads = resources.cpus or max(1, (os.cpu_count() or 1) // resources.jobs)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "classwise.studies.work", str(desk.folder), name]
        with log.open("ab") as sink:
            with self._lock:
                if self._stopped:
                    return 1
                child = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=environment)
                self._running.add(child)
            try:
                return child.wait()
            finally:
                self._running.discard(child)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.terminate()


def _last_words(log: Path) -> str:
    """What a job that failed said last; the whole is in its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'no word'} (see {log})"
