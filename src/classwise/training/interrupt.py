"""Ctrl-C, and the SIGTERM of a cluster, as a request: the loop saves a checkpoint and then stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from classwise.core.stopping import Stopped, handling


@dataclass
class StopRequest:
    """Whether the training is asked to stop, and by which signal."""

    asked: bool = False
    number: int = signal.SIGINT


@contextmanager
def interruptible() -> Iterator[StopRequest]:
    """The first signal is a request; the second ends the process at once, as usual. Only the main thread can listen."""
    request = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise Stopped(number)
        request.asked, request.number = True, number

    with handling(ask):
        yield request
