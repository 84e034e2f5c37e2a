"""A transfer attack: adversarial examples crafted on other models and tried on this one, without querying it first.

    x'_k = attack(surrogate_k, x, y, ε),    k = 1…K

Black-box in the strictest sense (Papernot et al. 2016), and the usual test for masked gradients: where it breaks what
a white-box attack could not, that one was misled. As usual PGD-20 with the true labels is what crafts; the point
it ends with is tried, since one that fools the surrogate more surely also transfers better. Several surrogates, or
several restarts of the attack, are tried one after the other on the survivors.

    transfer:model=resnet-18,weights=plain.pt
    transfer:model=[(resnet:width=16,blocks=[1, 1]), vgg-16],weights=[a.pt, b.pt],attack=(pgd:steps=50,step=0.003)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise import attacks
from classwise.attacks.attack import Attack, Model, OneShot, Rows, final_point, initial_rows, run, select
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.threat import Ball

PAPERS = ("papernot2016",)


@dataclass(frozen=True)
class Surrogate:
    """A model to craft on, and what tells it from others."""

    name: str
    fingerprint: str
    call: Model = field(repr=False)

    @classmethod
    def of(cls, model: Model, name: str = "") -> Surrogate:
        if isinstance(model, Surrogate):
            return model
        return cls(name or type(model).__name__, _fingerprint(model) if isinstance(model, nn.Module) else "", model)

    def __call__(self, x: Tensor) -> Tensor:
        return self.call(x)

    def __str__(self) -> str:
        return f"{self.name} {self.fingerprint}".strip()


@dataclass(frozen=True)
class Transfer(OneShot):
    """Fields: the surrogates' specs and weights files; the attack that crafts; a file to keep its points in.

    store: points are taken from there if they were crafted before on the same surrogate with the same settings, from
        the same image, label, radius and random numbers; others are added. An SQLite file.
    surrogates: in Python, the models themselves, in eval mode and on the device of the images. An audit loads those
        that `model` names.
    """

    model: spec.ListText | None = None
    weights: spec.ListText | None = None
    attack: Attack | str = "pgd-20"
    store: str | None = None
    surrogates: Sequence[Model] = ()

    needs_gradient = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # One way of writing each, that of run folders, so that the same attack is the same however it was given.
        for name in ("model", "weights"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, "+".join(spec.items(text, older=r"\+")).replace(",", ";"))
        text = self.attack if isinstance(self.attack, str) else attacks.written(self.attack)
        if text is not None:
            object.__setattr__(self, "attack", text.replace(",", ";"))
        if not all(callable(model) for model in self.surrogates):
            raise UserError(f"surrogates are models, got {self.surrogates!r}; name them by model=… instead.")
        object.__setattr__(self, "surrogates", tuple(Surrogate.of(model) for model in self.surrogates))
        if len(attacks_in(self.attack)) != 1 or isinstance(self.crafting, Transfer):
            raise UserError(f"transfer crafts with one attack, such as pgd-20; got attack={self.attack}.")
        self.named()
        if self.store is not None and not all(Surrogate.of(model).fingerprint for model in self.surrogates):
            raise UserError("store needs surrogates that are torch modules: their weights say which points are theirs.")

    @property
    def restarts(self) -> int:
        return self.crafting.restarts * max(len(self.surrogates) or len(self.named()), 1)

    @functools.cached_property
    def crafting(self) -> Attack:
        """The attack that crafts."""
        return attacks_in(self.attack)[0]

    def named(self) -> list[tuple[str, str | None]]:
        """The surrogates asked for: a spec and a weights file each."""
        if self.model is None:
            return []
        specs = [spec.nested(part) for part in self.model.split("+")]
        if self.weights is None:
            return [(part, None) for part in specs]
        files = [None if part in ("", "none") else part for part in self.weights.split("+")]
        if len(files) != len(specs):
            raise UserError(f"{len(files)} weights files for {len(specs)} surrogates; give one each, [a.pt, b.pt].")
        return list(zip(specs, files, strict=True))

    def with_surrogates(self, load: Callable[[str, str | None], Model]) -> Transfer:
        """The attack with the surrogates it names, made by `load(spec, weights)`, unless it has some already."""
        if self.surrogates or self.model is None:
            return self
        made = [Surrogate.of(load(part, weights), part) for part, weights in self.named()]
        return dataclasses.replace(self, surrogates=made)

    def for_classes(self, num_classes: int) -> Transfer:
        fitted = self.crafting.for_classes(num_classes)
        return self if fitted == self.crafting else dataclasses.replace(self, attack=fitted)

    def points(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        if not self.surrogates:
            raise UserError(
                f"transfer has no model to craft on{f': {self.model} is not loaded' if self.model else ''}. In an "
                "audit name one, transfer:model=resnet-18,weights=a.pt; in Python give Transfer(surrogates=[model])."
            )
        which = rows["restart"] // self.crafting.restarts
        x_adv = rows["x"].clone()
        for number in sorted(set(which.tolist())):
            mine = which == number
            x_adv[mine] = self._crafted_on(Surrogate.of(self.surrogates[number]), select(rows, mine), ball)
        return x_adv

    def _crafted_on(self, surrogate: Surrogate, rows: Rows, ball: Ball) -> Tensor:
        """The points crafted on one surrogate, from the store where it has them."""
        if self.store is None:
            return crafted(self.crafting, surrogate, rows, ball)
        names = _names(f"{surrogate.fingerprint} {self.crafting} {ball.name}", rows)
        x, stored = rows["x"].clone(), _read(self.store, names)
        missing = torch.tensor([point is None for point in stored], device=x.device)
        for place, point in enumerate(stored):
            if point is not None:
                x[place] = torch.frombuffer(bytearray(point), dtype=x.dtype).reshape(x.shape[1:]).to(x.device)
        if missing.any():
            x[missing] = crafted(self.crafting, surrogate, select(rows, missing), ball)
            added = missing.nonzero()[:, 0].tolist()
            _write(self.store, [(names[place], _array(x[place]).tobytes()) for place in added])
        return x


def attacks_in(given: Attack | str) -> list[Attack]:
    """The attacks of a spec inside a spec, or the one given."""
    return list(attacks.parse(spec.nested(given) if isinstance(given, str) else given).values())


def crafted(attack: Attack, model: Model, rows: Rows, ball: Ball) -> Tensor:
    """The points the attack ends with on `model`, from the examples' own random numbers."""
    attack.require_norm(ball.name)
    own = initial_rows(rows["x"], rows["y"], rows["eps"], rows["key"], rows["restart"] % attack.restarts)
    return final_point(run(attack, model, own, ball))


def _fingerprint(model: nn.Module) -> str:
    """A hash of the layers and of every weight and buffer."""
    whole = hashlib.sha256(repr(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        whole.update(name.encode())
        if isinstance(tensor, Tensor):
            whole.update(_array(tensor).tobytes())
    return whole.hexdigest()[:16]


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _names(settings: str, rows: Rows) -> list[str]:
    """What each example's point is called in a store: a hash of all that decides it."""
    columns = [_array(rows[name]) for name in ("x", "y", "eps", "key")]
    kind = f"{settings} {columns[0].dtype} {columns[0].shape[1:]}".encode()
    return [
        hashlib.sha256(kind + b"".join(part.tobytes() for part in row)).hexdigest()
        for row in zip(*columns, strict=True)
    ]


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS points (name TEXT PRIMARY KEY, point BLOB)")
            yield database
    except (sqlite3.Error, OSError) as error:
        raise UserError(
            f"cannot keep points in {path}: {error}. Name a file to make, or one made by transfer."
        ) from error


def _read(path: str, names: list[str]) -> list[bytes | None]:
    with _opened(path) as database:
        found = [database.execute("SELECT point FROM points WHERE name = ?", (name,)).fetchone() for name in names]
    return [None if row is None else row[0] for row in found]


def _write(path: str, points: list[tuple[str, bytes]]) -> None:
    with _opened(path) as database:
        database.executemany("INSERT OR REPLACE INTO points VALUES (?, ?)", points)
