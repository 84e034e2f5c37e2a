"""Trainings of a second: a tiny network on some digits, and how to tell that two of them went the same way."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
import torch

import classwise as cw
from classwise.cli.main import main
from classwise.models import read_checkpoint
from classwise.training.step import TrainStep
from classwise.training.train import Trained

NET = """
import os
from pathlib import Path
from torch import nn

def plain(num_classes, in_channels=1):
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(36, num_classes))

def noted(num_classes, in_channels=1):
    (Path(__file__).parent / f"process-{os.environ['RANK']}").write_text(str(os.getpid()))
    return plain(num_classes, in_channels)

def normed(num_classes, in_channels=1):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, num_classes)
    )

def dropping(num_classes, in_channels=1):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, 2), nn.Dropout(0.3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(36, num_classes),
    )
"""

#: Two epochs of three steps on sixty digits, twenty held out.
RECIPE: dict[str, Any] = {
    "data": {"name": "digits", "per_class": 8, "validation": 2},
    "threat": {"eps": 0.1},
    "method": {"name": "trades", "steps": 2},
    "train": {"epochs": 2, "batch": 20, "optimizer": "sgd:lr=0.1,momentum=0.9,weight_decay=5e-4", "schedule": "cosine"},
    "validate": {"attack": ["pgd-2"]},
}


class Killed(BaseException):
    """The end of a process, as far as one can have it without ending this one."""


def net_file(folder: Path) -> Path:
    """The file of the networks: ``net.py:plain``, ``normed`` (batch-norm), ``dropping`` (dropout as well), and
    ``noted`` (plain, but leaves the number of its process beside the file)."""
    path = folder / "net.py"
    path.write_text(NET)
    return path


def small(folder: Path, net: str = "plain", **parts: dict[str, Any]) -> dict[str, Any]:
    """RECIPE with one of the networks, and with changed parts; a method by another name has its own fields."""
    tree = {**RECIPE, "model": {"spec": f"{net_file(folder)}:{net}"}}
    for name, part in parts.items():
        fresh = name == "method" and "name" in part
        tree[name] = dict(part) if fresh else {**tree.get(name, {}), **part}
    return tree


def written(tree: dict[str, Any], path: Path) -> Path:
    """The recipe as a file."""
    path.write_text(tomli_w.dumps(tree))
    return path


#: Has torch imported once, where a new interpreter takes seconds.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["classwise.cli.main", "classwise.training.train"])


def start(*arguments: Any, log: Path, **environment: str) -> BaseProcess:
    """``classwise …`` in a process of its own; what it prints goes to a file."""
    process = SERVER.Process(target=_command, args=([*map(str, arguments)], log, environment))
    process.start()
    return process


def _command(arguments: list[str], log: Path, environment: dict[str, str]) -> None:
    with log.open("w") as handle:
        for descriptor in (1, 2):
            os.dup2(handle.fileno(), descriptor)
    os.environ.update(environment)
    sys.argv = ["classwise", *arguments]
    main()


def until(there: Callable[[], Any], alive: Callable[[], Any], seconds: float = 120) -> None:
    """Wait for something that a process is to do."""
    end = time.monotonic() + seconds
    while not there():
        assert alive(), "it ended before its time"
        assert time.monotonic() < end, "too slow"
        time.sleep(0.005)


def run(tree: dict[str, Any], out: Path, **rest: Any) -> Trained:
    return cw.train(tree, out=out, progress=False, **rest)


@contextmanager
def dying_after(steps: int) -> Iterator[None]:
    """The process ends after so many steps, before anything is made of the last one."""
    left, step = [steps], TrainStep.__call__

    def mortal(self: TrainStep, *args: Any, **kwargs: Any) -> Any:
        found = step(self, *args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", mortal)
        with pytest.raises(Killed):
            yield


def history(out: Path) -> pd.DataFrame:
    """history.csv without the times."""
    return pd.read_csv(out / "history.csv").drop(columns="seconds")


def content(out: Path, name: str = "last.pt") -> dict[str, Any]:
    """All that a checkpoint holds but times; `shown` are the weights in front, averaged ones where there are."""
    whole = read_checkpoint(out / name)
    about = dict(whole["classwise"]["extra"]["training"])
    about.pop("seconds", None)
    rows = json.loads(about.pop("history", "[]"))
    return {"shown": whole["state_dict"], **about, "rows": [{**row, "seconds": 0} for row in rows]}


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Nested values, tensors bit by bit."""
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, value in expected.items():
            assert_same(found[key], value, f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_same(found[place], value, f"{where}[{place}]")
    else:
        assert found == expected or (found != found and expected != expected), (where, found, expected)


def assert_same_run(out: Path, expected: Path) -> None:
    """History, weights, optimiser, class-wise state, averages: all the same; and no half files."""
    pd.testing.assert_frame_equal(history(out), history(expected), check_exact=True)
    assert_same(content(out), content(expected), "last.pt")
    assert_same(content(out, "best.pt")["shown"], content(expected, "best.pt")["shown"], "best.pt")
    assert {path.name for path in out.iterdir()} <= {
        "config.toml", "history.csv", "last.pt", "previous.pt", "best.pt", "remarks.json"
    }  # fmt: skip
