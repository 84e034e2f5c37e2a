"""Ctrl-C and SIGTERM: the first asks, the second ends; and what was asked in the middle of an epoch is saved."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from small_runs import assert_same_run, content, run, small

from classwise.core.stopping import Interrupted, exit_code
from classwise.training.interrupt import interruptible
from classwise.training.step import TrainStep


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as ended, interruptible() as stop:  # noqa: PT012
        assert not stop.asked
        os.kill(os.getpid(), number)
        assert stop.asked
        os.kill(os.getpid(), number)
    assert not isinstance(ended.value, Interrupted)  # nothing was saved
    assert exit_code(ended.value) == 128 + number
    assert signal.getsignal(number) is before


def test_other_threads_do_not_listen() -> None:
    before, asked = signal.getsignal(signal.SIGINT), []

    def listen() -> None:
        with interruptible() as stop:
            asked.append(stop.asked)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert asked == [False]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "place", "number"),
    [(1, (0, 1), signal.SIGINT), (3, (0, 3), signal.SIGTERM), (4, (1, 1), signal.SIGTERM)],
)
def test_what_was_asked_is_done_after_the_step_with_everything_saved(
    steps: int, place: tuple[int, int], number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first of an epoch's three steps, after its last one, and in the second epoch."""
    tree, step, done = small(tmp_path, "dropping"), TrainStep.__call__, []
    run(tree, tmp_path / "whole")

    def interrupted(self: TrainStep, *args: Any) -> Any:
        done.append(step(self, *args))
        if len(done) == steps:
            os.kill(os.getpid(), number)
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "__call__", interrupted)
        with pytest.raises(Interrupted) as stopped:
            run(tree, tmp_path / "run")
    assert exit_code(stopped.value) == 128 + number
    assert len(done) == steps
    saved = content(tmp_path / "run")
    assert (saved["epoch"], saved["step"]) == place
    assert len(saved["seen"]["index"]) == 20 * saved["step"]
    run(tree, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
