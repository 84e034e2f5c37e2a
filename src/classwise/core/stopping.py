"""SIGINT (Ctrl-C) and SIGTERM (of a cluster, or of kill): how a command is asked to stop.

Imported before anything else by the command line, so that it needs nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to stop."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = int(number)


class Interrupted(Stopped):
    """A signal asked for a stop, and what was done so far is saved."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 and the number of the signal, as shells say it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], None], numbers: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Have the signals handled so, in the main thread, which is the only one that can listen; then as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` where a signal comes; in the middle of an import leave at once, there is nothing to save.

    (An import that is cut short surfaces as any error, or looks like a missing package to whoever tried it.)
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            os.write(2, b"stopped.\n")
            os._exit(128 + number)
        raise Stopped(number)

    # Signals that a shell lets its background processes ignore stay ignored.
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with handling(stop, heeded):
        yield


def end_by(stop: KeyboardInterrupt) -> None:
    """End this process by the signal that stopped it, so that whoever started it sees how it ended."""
    number = exit_code(stop) - 128
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
