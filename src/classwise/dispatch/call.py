"""Doing a call in a process of its own.

``python -m classwise.dispatch.call PARENT FUNCTION ARGUMENTS`` does it, with arguments in JSON or in a file of that; it
stops when the process PARENT, which started it, is gone. Of torchrun's processes each takes the arguments of its rank.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from classwise.core.stopping import end_by, stopping

_WATCHED = 0.5  # seconds between checks that the process that started this one is alive


def do(function: str, arguments: Sequence[Any], threads: int | None = None, where: str | None = None) -> str | None:
    """Call a function by its name, with that many threads, from the folder `where` if this machine has it."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    if where is not None and os.path.isdir(where):
        os.chdir(where)
    module, _, name = function.partition(":")
    called: Callable[..., str | None] = getattr(importlib.import_module(module), name)
    return called(*arguments)


def stop_with(parent: int) -> None:
    """End this process as by SIGTERM (a training saves its state) when the one that started it is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCHED)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(parent: str, function: str, arguments: str) -> int:
    """Do one call and say what went wrong."""
    with stopping():
        if parent != "torchrun":
            stop_with(int(parent))
        text = arguments if arguments.startswith("[") else Path(arguments).read_text(encoding="utf-8")
        given = json.loads(text)
        try:
            wrong = do(function, given[int(os.environ["RANK"])] if parent == "torchrun" else given)
        except KeyboardInterrupt as stop:
            print("stopped; what is finished is kept", file=sys.stderr, flush=True)
            end_by(stop)
            raise  # where a signal does not end a process
    if wrong is not None:
        print(f"error: {wrong}", file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
