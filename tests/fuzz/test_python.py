"""Spoiled arguments of the Python functions end in a UserError, which names the value, or in a result."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz_cases import SEED, failure
from torch import nn

import classwise as cw
from classwise.results.compare import compare

pytestmark = pytest.mark.slow

BAD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2.5, float("nan"), float("inf"), 10**30, 1e300, 1 + 2j, "", "x", "-1", "1", b"x", "\0", "\x01",
    "a" * 3000, [], (), {}, {"x": 1}, {"*": None}, {1: 2}, [None], ["x", 3], [1, "2"], set(), object(), print, int, Path("missing"),
    Path(), np.array([1, 2]), np.array("x"), np.zeros(0), np.float64("nan"), torch.zeros(0), torch.tensor(0.1), torch.ones(2, 2),
    torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (2,)), torch.zeros(2, device="meta"), range(3),
    nn.Linear(2, 2), nn.Linear(64, 10, device="meta"), nn.Identity(), iter([1]), ..., Exception("x"),
)  # fmt: skip


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    return cw.load_data("digits").batch(np.arange(12))


def digits_twice() -> tuple[torch.Tensor, torch.Tensor]:
    """Two of each of a few classes: a repair fits on one and judges on the other."""
    x, y = digits()
    return torch.cat([x, x]), torch.cat([y, y])


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


RECIPE = {
    "data": {"name": "digits", "per_class": 4, "validation": 1},
    "model": {"spec": "resnet:width=4,blocks=1-1"},
    "threat": {"eps": 0.1},
    "method": {"name": "madry", "steps": 1},
    "train": {"epochs": 1, "batch": 16, "optimizer": "sgd:lr=0.1"},
    "validate": {"attack": ["pgd-1"]},
}

#: Functions with arguments that work; each argument in turn, and those not given here, becomes a bad value.
CALLS: dict[Callable[..., Any], Callable[[Path], dict[str, Any]]] = {
    cw.audit: lambda out: {"model": model(), "data": digits(), "attacks": "pgd-1", "eps": 0.1, "progress": False},
    cw.find_worst: lambda out: {"model": model(), "data": digits(), "attacks": "pgd-1", "eps": 0.1, "progress": False},
    cw.repair: lambda out: {"model": model(), "data": digits_twice(), "attacks": "pgd-1", "eps": 0.1, "rounds": 1},
    cw.RepairResult.load: lambda out: {"folder": out / "repair"},
    cw.train: lambda out: {"source": RECIPE, "out": out / "train", "progress": False},
    cw.load_model: lambda out: {"spec": "resnet:width=4,blocks=1-1", "num_classes": 10, "in_channels": 1},
    cw.load_data: lambda out: {"spec": "digits", "split": "test"},
    cw.Audit.load: lambda out: {"folder": out / "run"},
    cw.Records.read: lambda out: {"paths": out / "run"},
    cw.Threat: lambda out: {"norm": "linf", "eps": 0.1},
    cw.BlackBox: lambda out: {"model": lambda x: np.zeros((len(x), 10))},
    compare: lambda out: {"runs": [out / "run", out / "other"]},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "other"):
        cw.audit(model(), digits(), "pgd-1", 0.1, out=tmp_path / name)
    cw.repair(model(), digits_twice(), "pgd-1", 0.1, rounds=1, out=tmp_path / "repair")
    return tmp_path


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_a_bad_argument_is_a_user_error(
    function: Callable[..., Any], here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{SEED}-{function.__qualname__}")
    names = [*inspect.signature(function).parameters]
    if not isinstance(function, type):  # a class has Python's own answer to that
        names.append("unknown_argument")
    failed = []
    for number in range(max(30, 4 * len(names))):
        given = CALLS[function](here)
        name = names[number % len(names)]
        given[name] = rng.choice(BAD_VALUES)

        def call(given: dict[str, Any] = given) -> None:
            function(**given)

        if (how := failure(call, cw.UserError)) is not None:
            failed.append(f"{name}={given[name]!r:.80}\n{how}")
    assert not failed, f"{len(failed)} tracebacks\n" + "\n".join(failed)


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_the_unspoiled_call_works(function: Callable[..., Any], here: Path) -> None:
    """Else the fuzzing would only meet the first error."""
    function(**CALLS[function](here))
