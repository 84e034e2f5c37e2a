"""What tests of jobs share: a desk that is only planned, waiting for something to become true, and whether a process
runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from classwise.studies.frame.graph import Graph, Job
from classwise.studies.frame.work import Desk, Place


def planned(folder: Path, *jobs: Job) -> Desk:
    """A desk of which nothing is written."""
    return Desk(folder, Graph.of(jobs), Place())


def wait_until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether there is such a process that is not merely waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
