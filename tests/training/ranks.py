"""A function in several processes that train together: gloo, one thread each."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import SERVER

from classwise.training import train as train_file
from classwise.training.state import TrainingState


def meeting(world: int) -> dict[str, str]:
    """The environment in which processes find each other."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}


def on_ranks(
    function: Callable[..., Any], folder: Path, *arguments: Any, world: int = 2, seconds: float = 100
) -> list[Any]:
    """What ``function(rank, folder, *arguments)`` returns in each process; a test that waits longer fails."""
    where = meeting(world)
    started = [
        SERVER.Process(target=_call, args=(function, rank, folder, arguments, {**where, "RANK": str(rank)}))
        for rank in range(world)
    ]
    for process in started:
        process.start()
    _join(started, seconds)
    found = [torch.load(folder / f"answer-{rank}.pt", weights_only=False) for rank in range(world)]
    for rank, (_, problem) in enumerate(found):
        assert problem is None, f"process {rank}:\n{problem}"
    return [answer for answer, _ in found]


def _join(started: list[BaseProcess], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in started:
        process.join(max(end - time.monotonic(), 0.1))
    late = [rank for rank, process in enumerate(started) if process.is_alive()]
    for process in started:
        process.kill()
        process.join()
    if late:
        pytest.fail(f"processes {late} still wait for each other after {seconds:g} s")


def _call(function: Callable[..., Any], rank: int, folder: Path, arguments: Any, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    answer = problem = None
    try:
        answer = function(rank, folder, *arguments)
    except BaseException:
        problem = traceback.format_exc()
    torch.save((answer, problem), folder / f"answer-{rank}.pt")


def recorded(training: Callable[[], Any]) -> TrainingState:
    """The state that a training ends with in this very process."""
    found: list[TrainingState] = []
    plain = train_file.fit

    def fit(*arguments: Any) -> TrainingState:
        found.append(plain(*arguments))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_file, "fit", fit)
        training()
    return found[0]
