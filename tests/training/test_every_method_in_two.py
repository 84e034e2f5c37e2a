"""Every registered method in two processes ends where it does in one: the same weights, the same class-wise state.

The networks compute in float64, so that what is compared is what the processes compute and not the signs of gradients
that rounding decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import on_ranks, recorded
from small_runs import assert_same, small
from torch import Tensor, nn

import classwise as cw
from classwise import methods

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # such as: too short

#: What shortens a method, or makes its class-wise part begin within two epochs.
SETTINGS: dict[str, dict[str, Any]] = {
    "cfa": {"begin": 1},
    "cfol": {"eta": 0.01},
    "csl": {"cosine": 0.5},
    "csr": {"gamma": 0.0},
    "dafa": {"warmup": 1},
    "trix": {"warmup": 1},
    "ham": {"begin": 1, "check": 1},
    "frl_rw": {"tau1": 0.01, "tau2": 0.01},
    "frl_rwrm": {"tau1": 0.01, "tau2": 0.01},
    "fair_ard": {"protocol": "code"},
    "sy_far": {"symmetry": 0.1},
}

#: Further ones that pass the network otherwise.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "csl, targeted in train mode": ("csl", {"target": "weakest", "mode": "train"}),
    "ham, attacked in train mode": ("ham", {"begin": 0, "check": 1, "mode": "train"}),
    "fair_ard of mtard": ("fair_ard", {"base": "mtard", "protocol": "code"}),
    "cfa, fat in train mode": ("cfa", {"base": "fat", "begin": 1, "mode": "train", "tau": 1, "clean_pass": True}),
}


class Net(nn.Module):
    """float64 inside; with batch-norm, and a cosine head for methods of hypersphere embedding."""

    def __init__(self, seed: int, cosine: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten())
        self.head = nn.Linear(36, 10)
        self.cosine = cosine
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x.double())
        if not self.cosine:
            found: Tensor = self.head(h)
            return found
        return nn.functional.normalize(h, dim=1) @ nn.functional.normalize(self.head.weight, dim=1).T


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    return {**{name: (name, SETTINGS.get(name, {})) for name in methods.names()}, **VARIANTS}


def trained(folder: Path, case: str, where: str) -> dict[str, Any]:
    name, settings = cases()[case]
    if name not in ("fast", "standard"):
        settings = {"steps": 2, **settings}
    train = {"epochs": 2, "batch": 21, "awp": "awp:gamma=0.005", "averaging": "swa:estimate=true"}
    tree = small(folder, method={"name": name, **settings}, train=train)
    net, teacher = (Net(seed, cosine=name.startswith("he")) for seed in (1, 9))
    teachers: dict[str, Any] = {wanted: teacher.eval() for wanted in methods.parse(name, settings).needs_teacher()}
    out = folder / where / case
    state = recorded(lambda: cw.train(tree, model=net, **teachers, out=out, progress=False))
    return {"state": state.method_state, "weights": state.average, "history": len(state.history)}


def _every(rank: int, folder: Path, names: list[str]) -> dict[str, Any]:
    return {case: trained(folder, case, "together") for case in names}


@pytest.mark.parametrize("half", [0, 1])
def test_every_method_ends_in_two_processes_where_it_does_in_one(half: int, tmp_path: Path) -> None:
    names = list(cases())[half::2]
    one, two = on_ranks(_every, tmp_path, names, seconds=400)
    assert_same(two, one)
    far = {}
    for case in names:
        alone = trained(tmp_path, case, "alone")
        for part in ("state", "weights"):
            assert alone[part].keys() == one[case][part].keys()
            for name, value in alone[part].items():
                apart = (one[case][part][name].double() - value.double()).abs() / (1 + value.abs())
                if value.numel() and not float(apart.nan_to_num(0.0).max()) <= 1e-4:
                    far[f"{case}: {name}"] = float(apart.max())
    assert not far
    moving = [case for case in names if float(one[case]["state"]["weight"].std()) > 1e-3]
    assert len(moving) > 2  # there were class-wise states to agree on
