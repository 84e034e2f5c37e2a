"""Real processes: kill -9 at random moments, Ctrl-C in the middle of an epoch; the end is the same, bit by bit."""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import assert_same_run, content, run, small, start, until, written

pytestmark = pytest.mark.slow

TRAIN: dict[str, Any] = {"epochs": 10, "averaging": "ema:decay=0.9", "save_minutes": 0}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    return written(small(folder, "dropping", train=TRAIN), folder / "recipe.toml")


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """The run that nobody disturbs."""
    run(small(recipe.parent, "dropping", train=TRAIN), recipe.parent / "whole")
    return recipe.parent / "whole"


def changed(path: Path, since: int) -> bool:
    return path.exists() and path.stat().st_mtime_ns > since


def test_killed_three_times_at_random_it_ends_the_same(recipe: Path, whole: Path, tmp_path: Path) -> None:
    out, log, moment = tmp_path / "run", tmp_path / "log", random.Random()
    for option in ("--out", "--out", "--resume"):
        saved = functools.partial(changed, out / "last.pt", time.time_ns())
        process = start("train", recipe, option, out, log=log)
        until(saved, process.is_alive)
        time.sleep(moment.uniform(0, 0.2))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    left = content(out) if (out / "last.pt").exists() else content(out, "next.pt")
    assert 0 < 3 * left["epoch"] + left["step"] < 30
    process = start("train", recipe, "--out", out, log=log)
    process.join(120)
    assert process.exitcode == 0, log.read_text()
    assert "epoch 10 of 10: loss" in log.read_text()
    assert "10 epochs" in log.read_text()
    assert_same_run(out, whole)


def test_asked_to_stop_it_saves_and_resumes_where_it_stopped(recipe: Path, whole: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    process = start("train", recipe, "--out", out, log=log)
    until((out / "history.csv").exists, process.is_alive)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(120)
    printed = log.read_text()
    assert process.exitcode == 130, printed
    assert "Traceback" not in printed
    assert printed.rstrip().endswith(f"stopped (saved); the same command resumes in {out}.")
    run(small(recipe.parent, "dropping", train=TRAIN), out)
    assert_same_run(out, whole)


def test_to_resume_there_must_be_something(recipe: Path, tmp_path: Path) -> None:
    process = start("train", recipe, "--resume", tmp_path / "none", log=tmp_path / "log")
    process.join(120)
    assert process.exitcode == 2
    assert "is no run folder of a training" in (tmp_path / "log").read_text()
