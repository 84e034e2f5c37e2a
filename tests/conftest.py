"""What all tests share: one thread per process, audits made by hand, and what a test must be marked slow for.

Torch, pandas and the package are imported where they are used: the process that hands tests to others needs none.
"""

from __future__ import annotations

import os

# Before torch is imported: tests run side by side, and threads that wait for each other are slower than one alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import functools
import importlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

    from classwise.core.meta import AttackInfo
    from classwise.data.images import Images
    from classwise.results.audit_result import Audit


def make_audit(
    correct: Mapping[str, Sequence[int]],
    support: Sequence[int],
    names: Sequence[str] | None = None,
    infos: Mapping[str, AttackInfo] | None = None,
    **rest: Any,
) -> Audit:
    """An audit with so many of each class right under each attack; the first ones stand longest, errors go to the next.

    "clean" is all right unless it is given. The first examples of a class are the right ones, so that an attack with
    fewer right breaks a superset of what one with more breaks.
    """
    import numpy as np
    import pandas as pd

    from classwise.core.meta import Meta
    from classwise.core.records import CLEAN, Records
    from classwise.results.audit_result import Audit

    names = names or [f"class {number}" for number in range(len(support))]
    label = np.repeat(np.arange(len(support)), support)
    rank = np.concatenate([np.arange(n) for n in support])
    frames = []
    attacks = {CLEAN: support, **correct}
    for attack, right in attacks.items():
        stands = rank < np.asarray(right)[label]
        frames.append(
            pd.DataFrame(
                {
                    "index": np.arange(len(label)),
                    "label": label.astype(np.int32),
                    "attack": attack,
                    "eps": 0.0 if attack == CLEAN else 8 / 255,
                    "prediction": np.where(stands, label, (label + 1) % len(support)).astype(np.int32),
                    "confidence": np.float32(0.5),
                    "true_prob": np.where(stands, 0.5, 0.25).astype(np.float32),
                    "loss": np.where(stands, 0.7, 1.4).astype(np.float32),
                    "distance": np.float32(0),
                    "minimal": np.float32(np.inf),
                    "step": np.int32(0),
                    "queries": np.int64(0),
                }
            )
        )
    infos = {name: _info(name.partition("-")[0]) for name in attacks} | dict(infos or {})
    meta = Meta(class_names=tuple(names), eps=8 / 255, attacks=infos, stats=rest.pop("stats", {}))
    return Audit(Records(pd.concat(frames, ignore_index=True), meta), **rest)


_quick = False  # whether the test that runs now is one of `make quick`


def _only_if_slow(owner: Any, name: str, does: str) -> None:
    """Make a function fail the tests that call it without being marked slow."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if _quick:
            pytest.fail(f"this test {does}: mark it with @pytest.mark.slow, as CONTRIBUTING.md says")
        return original(*args, **kwargs)

    setattr(owner, name, checked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _only_if_slow(subprocess.Popen, "__init__", "starts a process")
    _only_if_slow(BaseProcess, "start", "starts a process")
    _only_if_slow(importlib.import_module("classwise.training.train"), "fit", "trains a model")
    for module, name in (("typer.main", "get_command"), ("typer.testing", "_get_command")):
        owner = importlib.import_module(module)
        setattr(owner, name, functools.cache(getattr(owner, name)))  # commands are built once, not by every test
    for item in items:
        if item.get_closest_marker("browser") or "models" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _quick
    _quick = item.get_closest_marker("slow") is None
    try:
        return (yield)
    finally:
        _quick = False


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """Random weights of a test are the same, whichever tests ran before it in this process."""
    import torch

    torch.default_generator.manual_seed(0)  # of the CPU alone, which takes a hundredth of the time


@pytest.fixture
def audit_of() -> Callable[..., Audit]:
    """audit_of({"pgd-20": [3, 1]}, support=[5, 5], names=("cat", "dog")) -> Audit"""
    return make_audit


@pytest.fixture
def net() -> nn.Module:
    """A small network of known weights."""
    from small_net import make_net

    return make_net()


@pytest.fixture
def images(net: nn.Module) -> Images:
    """Images that the small network predicts correctly."""
    from small_net import make_images

    return make_images(net)


def _info(attack: str) -> AttackInfo:
    from classwise.core.meta import AttackInfo

    blind = ("nattack", "noise", "square", "transfer")
    return AttackInfo(settings={"name": attack}, needs_gradient=attack not in blind)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of two short trainings on the digits, standard and madry, by name; tests that use them are slow."""
    import classwise as cw
    from quick import QUICK

    folder = tmp_path_factory.mktemp("models")
    for name in ("standard", "madry"):
        changes = [change for change in QUICK if name != "standard" or "method" not in change]
        cw.train(f"desk/digits/{name}", out=folder / name, changes=changes, progress=False)
    return {name: folder / name for name in ("standard", "madry")}
