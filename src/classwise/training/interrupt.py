"""Ctrl-C, and the SIGTERM of a cluster, as a question instead of an end: the loop saves what it has and leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


class Interrupted(KeyboardInterrupt):
    """The training was asked to stop and has saved what it has."""


@dataclass
class Asked:
    """Whether somebody wants the training to stop."""

    asked: bool = False


@contextmanager
def interruptible() -> Iterator[Asked]:
    """The first signal asks; the second ends at once, as usual. Only the main thread can listen."""
    state = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def ask(number: int, frame: Any) -> None:
        if state.asked:
            raise KeyboardInterrupt
        state.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
