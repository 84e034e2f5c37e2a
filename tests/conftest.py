"""What all tests share: one thread per process, and audits made by hand."""

from __future__ import annotations

import os

# Before torch is imported: tests run side by side, and threads that wait for each other are slower than one alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import classwise as cw
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, Records
from classwise.data.images import Images
from classwise.results.audit_result import Audit
from quick import QUICK
from small_net import make_images, make_net


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


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """Random weights of a test are the same, whichever tests ran before it in this process."""
    torch.manual_seed(0)


@pytest.fixture
def audit_of() -> Callable[..., Audit]:
    """audit_of({"pgd-20": [3, 1]}, support=[5, 5], names=("cat", "dog")) -> Audit"""
    return make_audit


@pytest.fixture
def net() -> nn.Module:
    """A small network of known weights."""
    return make_net()


@pytest.fixture
def images(net: nn.Module) -> Images:
    """Images that the small network predicts correctly."""
    return make_images(net)


def _info(attack: str) -> AttackInfo:
    blind = ("nattack", "noise", "square", "transfer")
    return AttackInfo(settings={"name": attack}, needs_gradient=attack not in blind)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of two short trainings on the embedded digits, standard and madry, for every study to look at."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("standard", "madry"):
        changes = [change for change in QUICK if name != "standard" or "method" not in change]
        cw.train(f"desk/digits/{name}", out=folder / name, changes=changes, progress=False)
    return {name: folder / name for name in ("standard", "madry")}
