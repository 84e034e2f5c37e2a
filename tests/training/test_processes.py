"""Two processes under torchrun train as one does; when one dies, both resume where they stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from small_runs import assert_same_run, content, history, run, small, start, until, written

from classwise.training.processes import Processes, process_group, restarted

#: Batches of 21, 21 and 18: shares of different sizes.
TRAIN: dict[str, Any] = {"epochs": 5, "batch": 21, "save_minutes": 0, "clip": 1.0, "awp": "awp:gamma=0.005"}


def tree_in(folder: Path) -> dict[str, Any]:
    """FRL: weights that are normalised over the whole batch, a state that moves, a validation before all."""
    tree = small(folder, "noted", train=TRAIN, method={"name": "frl_rwrm", "steps": 2, "tau1": 0.01, "tau2": 0.01})
    tree["model"]["weights"] = str(folder / "first" / "last.pt")
    return tree


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training in one process, and beside it what it began from."""
    folder = tmp_path_factory.mktemp("processes")
    run(small(folder, data={"per_class": 30}, method={"name": "standard"}), folder / "first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "alone")
        run(tree_in(folder), folder / "alone")
    return folder / "alone"


@pytest.fixture(scope="module")
def together(alone: Path) -> tuple[Path, str]:
    """The training in two processes, and what they printed."""
    out = alone.parent / "together"
    return out, by_two(tree_in(alone.parent), out)


def by_two(tree: dict[str, Any], out: Path) -> str:
    """A training in two processes; returns what they printed."""
    folder = out.parent
    recipe = written(tree, folder / f"{out.name}.toml")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    logs = [folder / f"{out.name}-{rank}.log" for rank in range(2)]
    processes = [
        start("train", recipe, "--out", out, log=log, RANK=str(rank), **meeting) for rank, log in enumerate(logs)
    ]
    for process in processes:
        process.join(240)
    printed = "".join(log.read_text() for log in logs)
    assert [process.exitcode for process in processes] == [0, 0], printed
    return printed


@pytest.mark.slow
def test_two_processes_train_as_one_does(alone: Path, together: tuple[Path, str]) -> None:
    assert_alike(together[0], alone)
    assert content(alone)["state"]["weight"].std() > 0.01  # there was something to agree on


def assert_alike(out: Path, alone: Path) -> None:
    """But for the rounding of sums taken in another order."""
    found, expected = history(out), history(alone)
    numbers = list(expected.select_dtypes("number"))
    pd.testing.assert_frame_equal(found[numbers], expected[numbers], atol=1e-4, rtol=1e-4, check_exact=False)
    assert found["worst_class"].tolist() == expected["worst_class"].tolist()
    one, two = content(alone), content(out)
    assert one["state"].keys() == two["state"].keys()
    for name, value in one["state"].items():
        torch.testing.assert_close(two["state"][name], value, atol=1e-5, rtol=1e-5)
    for name, value in one["shown"].items():
        torch.testing.assert_close(two["shown"][name], value, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_with_sync_norm_two_processes_are_one_with_the_same_batch(tmp_path: Path) -> None:
    """In float32, attacked in train mode; test_every_method_in_two.py has every method, without the rounding."""
    tree = small(tmp_path, "normed", method={"name": "fast", "steps": 1}, train={"epochs": 2, "batch": 21})
    run(tree, tmp_path / "alone")
    by_two(tree, tmp_path / "together")
    assert_alike(tmp_path / "together", tmp_path / "alone")
    by_two({**tree, "train": {**tree["train"], "sync_norm": False}}, tmp_path / "apart")
    expected, apart = (content(tmp_path / name)["shown"] for name in ("alone", "apart"))
    assert max(float((apart[name] - value).abs().max()) for name, value in expected.items()) > 1e-3


@pytest.mark.slow
def test_only_the_first_writes_and_speaks(together: tuple[Path, str]) -> None:
    out, printed = together
    assert [printed.count(f"epoch {epoch} of 5:") for epoch in range(1, 6)] == [1] * 5
    assert printed.count("Validation accuracy of epoch") == 1
    assert {path.name for path in out.iterdir()} == {
        "config.toml", "history.csv", "last.pt", "previous.pt", "best.pt"
    }  # fmt: skip


@pytest.mark.slow
def test_one_of_two_killed_both_resume_where_they_stopped(alone: Path, together: tuple[Path, str]) -> None:
    """And do not train from scratch, although --overwrite was given."""
    folder, out = alone.parent, alone.parent / "killed"
    recipe = written(tree_in(folder), folder / "recipe.toml")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    command = [*launcher, "-m", "classwise", "train", str(recipe), "--out", str(out), "--overwrite"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until((out / "history.csv").exists, lambda: process.poll() is None)
    os.kill(int((folder / "process-1").read_text()), signal.SIGKILL)
    printed, _ = process.communicate(timeout=500)
    assert process.returncode == 0, printed
    assert printed.count("epoch 1 of 5:") <= 1  # the one that is left may end before it says so
    assert_same_run(out, together[0])


def test_alone_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group(torch.device("cpu")) as processes:
        assert processes == Processes(0, 1)
        value = torch.tensor([1.0, 2.0])
        assert processes.average(value) is value
        assert processes.gather("mine") == ["mine"]
        assert processes.any(True, value.device)
        with processes.first_alone():
            pass
    assert not torch.distributed.is_initialized()


def test_torchrun_says_when_it_has_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert not restarted()
    for count, again in (("0", False), ("2", True)):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        assert restarted() == again
