"""What an example of the documentation is run with where the real thing is large, far away or slow.

A block asks for one by name in the note before it, `<!-- example: with cifar10, weights -->`; docs/extending.md lists
them. Each makes files in the folder the page's examples run in, or makes something smaller for the rest of the page.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch import nn

import classwise as cw
from classwise.attacks.autoattack import Autoattack
from classwise.data import cifar10 as cifar10_files
from classwise.training import recipe

_IMAGES = 20  # in a stand-in's split of a data set
_NETWORK = "resnet:width=8,blocks=1-1"
_NET = """
from torch import nn

def make(num_classes, in_channels=3):
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                         nn.Flatten(), nn.Linear(16, num_classes))
"""

StandIn = Callable[[Path, pytest.MonkeyPatch], None]


def cifar10(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """CIFAR-10's own files in data/, with twenty images of noise in each."""
    home = folder / "data" / "cifar-10-batches-py"
    home.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    labels = [number % len(cifar10_files.CLASS_NAMES) for number in range(_IMAGES)]
    for name in ("test_batch", *(f"data_batch_{part}" for part in range(1, 6))):
        pixels = draw.integers(0, 256, (_IMAGES, 3072), dtype=np.uint8)
        (home / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels}, protocol=2))


def pictures(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Small pictures in pictures/, a folder for each of two classes."""
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        home = folder / "pictures" / name
        home.mkdir(parents=True, exist_ok=True)
        for number in range(4):
            Image.fromarray(draw.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(home / f"{number}.png")


def signs(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Traffic signs in signs/train and signs/test, of two classes, a network in net.py and weights for it, sign.pt."""
    draw = np.random.default_rng(0)
    for split, counts in {"train": (20, 12), "test": (4, 4)}.items():
        for (grey, name), count in zip(((60, "stop"), (180, "yield")), counts, strict=True):
            home = folder / "signs" / split / name
            home.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = np.clip(draw.normal(grey, 40, (40, 36, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(home / f"{number}.png")
    (folder / "net.py").write_text(_NET, encoding="utf-8")
    torch.save(cw.load_model(f"{folder / 'net.py'}:make", num_classes=2).state_dict(), folder / "sign.pt")


def weights(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """m.pt: weights of the README's small ResNet as chance would have them."""
    model = cw.load_model("resnet:width=16,blocks=1-1-1-1", num_classes=len(cifar10_files.CLASS_NAMES), in_channels=3)
    torch.save(model.state_dict(), folder / "m.pt")


def short_training(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Every training: a tiny network, four images of each class, one epoch, one step of the inner attack."""
    load = recipe.load

    def shortened(source: Any, changes: Any = ()) -> recipe.Recipe:
        full = load(source, changes)
        own = {name: 1 for name in ("steps", "check") if hasattr(full.method, name)}  # ham checks one of its steps
        teachers = {name: getattr(full, name) for name in full.method.needs_teacher()}
        return dataclasses.replace(
            full,
            **{name: dataclasses.replace(part, spec=_NETWORK) for name, part in teachers.items()},
            data=dataclasses.replace(full.data, per_class=4, validation=min(full.data.validation, 1)),
            model=dataclasses.replace(full.model, spec=_NETWORK),
            method=dataclasses.replace(full.method, **own),
            train=dataclasses.replace(full.train, epochs=1, batch=10, phases=()),
            validate=dataclasses.replace(full.validate, attack=("pgd-1",)),
        )

    patch.setattr(recipe, "load", shortened)


def short_autoattack(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """AutoAttack: its members with two steps each, towards one class."""
    members = Autoattack.members

    def shortened(suite: Autoattack) -> list[Any]:
        few = {"iterations": 2, "queries": 2, "targets": 1}
        return [
            dataclasses.replace(attack, **{key: value for key, value in few.items() if hasattr(attack, key)})  # type: ignore[type-var]
            for attack in members(suite)
        ]

    patch.setattr(Autoattack, "members", shortened)


def runs(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Finished audits of the same digits in runs/madry, runs/trades and runs/wat, adversarial images kept."""
    for name, strength in {"madry": 1e-3, "trades": 1e-2, "wat": 1e-1}.items():
        _audited(folder, name, "pgd-20", strength, save_adversarial=True)


def seeds(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Finished audits of the same digits in runs/trades-0 to runs/trades-2, and as many of wat and fat; and what papers
    printed, printed.csv."""
    for method, strength in {"trades": 1e-2, "wat": 2e-2, "fat": 1e-1}.items():
        for seed in range(3):
            _audited(folder, f"{method}-{seed}", "pgd-5", strength, noise=0.02)
    (folder / "printed.csv").write_text("group,worst,average\nwat,3.1,-0.8\n", encoding="utf-8")


_kept: dict[str, Path] = {}  # the audits are the same for every page


def _audited(folder: Path, name: str, attack: str, strength: float, noise: float = 0.0, **options: Any) -> None:
    """The audit of a linear classifier in runs/NAME, done once."""
    out = folder / "runs" / name
    if name in _kept:
        shutil.copytree(_kept[name], out)
    else:
        model = linear(strength, noise, zlib.crc32(name.encode()))
        cw.audit(model, "digits", attack, 0.1, out=out, progress=False, **options)
        _kept[name] = out


def linear(strength: float, noise: float, seed: int) -> nn.Module:
    """A linear classifier of the digits that has learnt something; the weaker its penalty, the more. noise: in its
    weights, drawn from the seed."""
    weight, bias = _fitted(strength)
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight + noise * np.random.default_rng(seed).standard_normal(weight.shape)))
        layer.bias.copy_(torch.from_numpy(bias))
    return nn.Sequential(nn.Flatten(), layer)


@functools.cache
def _fitted(strength: float) -> tuple[Any, Any]:
    images = cw.load_data("digits", split="train")
    x, y = images.batch(np.arange(len(images)))
    fitted = LogisticRegression(C=strength, max_iter=200).fit(x.flatten(1).numpy(), y.numpy())
    return fitted.coef_, fitted.intercept_


STAND_INS: dict[str, StandIn] = {
    "cifar10": cifar10,
    "pictures": pictures,
    "runs": runs,
    "seeds": seeds,
    "short autoattack": short_autoattack,
    "signs": signs,
    "short training": short_training,
    "weights": weights,
}
