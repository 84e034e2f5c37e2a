"""Ctrl-C, and the SIGTERM of a cluster, as a question instead of an end: the loop saves what it has and leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from classwise.core.stopping import Stopped, handling


class Interrupted(Stopped):
    """The training was asked to stop and has saved what it has."""


@dataclass
class Asked:
    """Whether somebody wants the training to stop, and by which signal."""

    asked: bool = False
    number: int = signal.SIGINT


@contextmanager
def interruptible() -> Iterator[Asked]:
    """The first signal asks; the second ends at once, as usual. Only the main thread can listen."""
    state = Asked()

    def ask(number: int, frame: FrameType | None) -> None:
        if state.asked:
            raise Stopped(number)
        state.asked, state.number = True, number

    with handling(ask):
        yield state
