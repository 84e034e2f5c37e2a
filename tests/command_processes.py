"""``classwise …`` in real processes that start quickly, forked from one that has imported everything already; waiting
for something to become true; and whether a process runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any


def command(*arguments: Any, log: Path) -> BaseProcess:
    """Start a command; what it prints goes to a file."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["classwise.cli.main", "classwise.auditing.find_worst", "sklearn.datasets"])
    process = server.Process(target=_main, args=([*map(str, arguments)], log))
    process.start()
    return process


def _main(arguments: list[str], log: Path) -> None:
    # Whoever starts the tests in the background may have them, and all they start, ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("w") as handle:
        for descriptor in (1, 2):
            os.dup2(handle.fileno(), descriptor)
    sys.argv = ["classwise", *arguments]
    from classwise.cli.main import main

    main()


def wait_until(true: Callable[[], Any], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def running(pid: int) -> bool:
    """Whether there is such a process that is not merely waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
