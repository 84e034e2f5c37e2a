"""What every attack keeps to, whatever it does: found by its file, tried in both norms and with its main settings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classwise import attacks
from classwise.attacks.attack import Attack, Rows, final_point, finished, initial_rows, join, select
from classwise.core import rng, spec
from classwise.core.threat import Norm, Threat, ball_of
from for_each import for_each

BUDGET = {"steps": 4, "draws": 4, "iterations": 8, "targets": 2, "queries": 20, "rounds": 4, "population": 8}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"start": "gaussian", "target": "likely"},
    {"start": "none", "restarts": 3},
    {"target": "random", "eot": 2},
    {"where": "boundary"},
    {"sound": True},
]
CLASSES, SHAPE, COUNT = 5, (3, 5, 5), 12
EPS: dict[Norm, float] = {"linf": 0.06, "l2": 0.4}


class Net(nn.Module):
    """A small network with kinks and a batch-norm, in double precision so that batches cannot change a sign."""

    def __init__(self, classes: int = CLASSES, channels: int = SHAPE[0]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.aside = nn.Identity()
        self.head = nn.Linear(4 * 3 * 3, classes)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.aside(self.body(x)))
        return logits


NET = Net().requires_grad_(False)


def on(net: nn.Module, attack: Any) -> Any:
    """The attack, crafting on `net` where it crafts on another model than the one attacked."""
    return dataclasses.replace(attack, surrogates=(net,)) if hasattr(attack, "surrogates") else attack


ONLY: dict[str, tuple[Norm, ...]] = {"cw": ("linf",)}  # attacks of one norm
WITHOUT = {"kl_pgd": {"start", "target"}}  # settings of a family that one of its members refuses
DRAWN = {"nattack", "square", "transfer"}  # always start at random, without a setting that says so


def cases(name: str) -> Iterator[tuple[Attack, Norm]]:
    (attack,) = attacks.parse(name, **BUDGET).values()
    attack = on(NET, attack)
    for variant in VARIANTS:
        if set(variant) <= set(attacks.settings(attack)) - WITHOUT.get(name, set()):
            made = dataclasses.replace(attack, **variant)  # type: ignore[type-var]
            yield from ((made, norm) for norm in ONLY.get(name, tuple(EPS)))


def every_attack(check: Callable[[Attack, Norm], None]) -> Callable[[str], None]:
    """One test of each attack, in both norms and with its main settings."""

    @pytest.mark.parametrize("name", attacks.names())
    def test(name: str) -> None:
        for_each(("attack", "norm"), cases(name))(check)()

    return test


every_name = for_each("name", attacks.names())


def batch() -> tuple[Tensor, Tensor]:
    """Images that touch 0 and 1, with labels right and wrong."""
    generator = torch.Generator().manual_seed(5)
    x = (1.4 * torch.rand(COUNT, *SHAPE, generator=generator, dtype=torch.float64) - 0.2).clamp(0, 1)
    y = NET(x).argmax(1)
    y[::4] = (y[::4] + 1) % CLASSES
    return x, y


def start(x: Tensor, y: Tensor, eps: float | Tensor, places: Tensor | None = None) -> Rows:
    """Rows whose random numbers belong to their place, and a column of the engine's own."""
    places = torch.arange(len(x)) if places is None else places
    return {**initial_rows(x, y, eps, rng.keys(3, places)), "place": places}


def trace(attack: Attack, rows: Rows, norm: Norm) -> list[Rows]:
    """The rows after `begin` and after each `advance`."""
    seen = [attack.begin(NET, rows, ball_of(norm))]
    for _ in range(attack.steps):
        if finished(seen[-1], attack.steps).all():
            break
        seen.append(attack.advance(NET, seen[-1], ball_of(norm)))
    return seen


def run(attack: Attack, rows: Rows, norm: Norm) -> Tensor:
    return trace(attack, rows, norm)[-1]["x_adv"]


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=1e-6)


@every_attack
def test_every_point_is_in_the_ball_and_in_the_pixel_range(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    eps = torch.linspace(0.2, 1.5, COUNT, dtype=x.dtype) * EPS[norm]
    for rows in trace(attack, start(x, y, eps), norm):
        free = "best" in rows  # looks for the nearest point, and may go anywhere
        for point in [final_point(rows)] if free else [rows["x_adv"], final_point(rows)]:
            assert point.shape == x.shape
            assert point.dtype == x.dtype
            assert point.min() >= 0
            assert point.max() <= 1
            assert (ball_of(norm).norm(point - x) <= eps * (1 + 1e-9)).all()
        assert 0 <= rows["x_adv"].min() <= rows["x_adv"].max() <= 1
        if free:
            found = rows["best"].isfinite()
            assert torch.equal(rows["best"][found], ball_of(norm).norm(rows["x_best"] - x)[found])
            assert (NET(rows["x_best"]).argmax(1) != y)[found].all()


@every_attack
def test_the_plain_call_is_in_the_ball_too(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    point = attacks.craft(attack, NET, x, y, Threat(norm, EPS[norm]), generator=torch.Generator().manual_seed(0))
    assert point.min() >= 0
    assert point.max() <= 1
    assert (ball_of(norm).norm(point - x) <= EPS[norm] * (1 + 1e-9)).all()


@pytest.mark.slow
@every_attack
def test_no_radius_no_change(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    assert torch.equal(
        attacks.craft(attack, NET, x, y, Threat(norm), eps=0.0, generator=torch.Generator().manual_seed(0)),
        x,
    )
    nearly = attacks.craft(attack, NET, x, y, Threat(norm, 1e-7), generator=torch.Generator().manual_seed(0))
    assert ball_of(norm).norm(nearly - x).max() <= 1.001e-7


@pytest.mark.slow
@every_attack
def test_a_radius_per_example_is_each_examples_own(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    eps = torch.linspace(0.2, 1.5, COUNT, dtype=x.dtype) * EPS[norm]
    whole = run(attack, start(x, y, eps), norm)
    for place in (0, 5, COUNT - 1):
        one = slice(place, place + 1)
        alone = run(attack, start(x[one], y[one], float(eps[place]), torch.tensor([place])), norm)
        assert same(alone, whole[one])


@pytest.mark.slow
@every_attack
def test_batch_and_order_do_not_matter(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    places = torch.arange(COUNT)
    whole = run(attack, start(x, y, EPS[norm]), norm)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    assert same(run(attack, start(x[order], y[order], EPS[norm], order), norm), whole[order])
    parts = [run(attack, start(x[p], y[p], EPS[norm], p), norm) for p in places.split(5)]
    assert same(torch.cat(parts), whole)


@pytest.mark.slow
@every_attack
def test_rows_may_come_and_go_in_the_middle(attack: Attack, norm: Norm) -> None:
    """One example joins at each step and leaves when it is done, as in an audit's batch that is kept full."""
    x, y = batch()
    whole = run(attack, start(x, y, EPS[norm]), norm)
    ends = torch.full_like(x, float("nan"))
    waiting, active = list(range(COUNT)), list[Rows]()
    while waiting or active:
        if waiting:
            place = torch.tensor([waiting.pop()])
            active.append(attack.begin(NET, start(x[place], y[place], EPS[norm], place), ball_of(norm)))
        rows = join(active)
        done = finished(rows, attack.steps)
        ends[rows["place"][done]] = rows["x_adv"][done]
        active = [] if done.all() else [attack.advance(NET, select(rows, ~done), ball_of(norm))]
    assert same(ends, whole)


@every_attack
def test_each_step_is_counted_and_tells_what_the_model_said(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    seen = trace(attack, start(x, y, EPS[norm]), norm)
    assert (seen[0]["t"] == 0).all()
    for before, after in itertools.pairwise(seen):
        assert torch.equal(after["t"], before["t"] + 1)
        assert torch.allclose(after["logits"], NET(before["x_adv"]))
        assert torch.equal(after["place"], before["place"])
        assert not any(column.requires_grad for column in after.values())
    assert all(len(column) == COUNT for rows in seen for column in rows.values())


@pytest.mark.slow
@every_attack
def test_the_generator_decides(attack: Attack, norm: Norm) -> None:
    x, y = batch()

    def crafted(seed: int) -> Tensor:
        return attacks.craft(attack, NET, x, y, Threat(norm, EPS[norm]), generator=torch.Generator().manual_seed(seed))

    assert torch.equal(crafted(7), crafted(7))
    settings = attacks.settings(attack)
    always = type(attack).__module__.rpartition(".")[2] in DRAWN
    drawn = settings.get("start", "none") != "none" or "draws" in settings or always
    begun = [
        attack.begin(NET, {**start(x, y, EPS[norm]), "key": rng.keys(s, torch.arange(COUNT))}, ball_of(norm))
        for s in (0, 1)
    ]
    assert torch.equal(begun[0]["x_adv"], begun[1]["x_adv"]) != drawn


@pytest.mark.slow
@every_attack
def test_memory_layout_does_not_matter(attack: Attack, norm: Norm) -> None:
    x, y = batch()
    turned = start(x.contiguous(memory_format=torch.channels_last), y, EPS[norm])
    assert same(run(attack, turned, norm), run(attack, start(x, y, EPS[norm]), norm))


@pytest.mark.slow
@every_attack
def test_two_classes_and_one_channel_will_do(attack: Attack, norm: Norm) -> None:
    net = Net(classes=2, channels=1).float()
    x = torch.rand(4, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    point = attacks.craft(on(net, attack), net, x, torch.tensor([0, 1, 0, 1]), Threat(norm, EPS[norm]))
    assert torch.isfinite(point).all()


@pytest.mark.slow
@every_attack
def test_nothing_else_is_touched(attack: Attack, norm: Norm) -> None:
    """Neither global random states, nor the model's modes, weights and gradients, nor the arguments."""
    net = Net()
    net.aside.train()
    net.head.weight.requires_grad_(False)
    net.head.bias.grad = torch.ones_like(net.head.bias)
    x, y = batch()
    eps = torch.full((COUNT,), EPS[norm], dtype=x.dtype)

    def observed() -> list[Any]:
        tensors = [x, y, eps, *net.state_dict().values(), torch.random.get_rng_state(), net.head.bias.grad]
        flags = [p.requires_grad for p in net.parameters()] + [m.training for m in net.modules()]
        missing = [p.grad is None for p in net.parameters()]
        states = [random.getstate(), np.random.get_state()[1].tolist()]  # noqa: NPY002
        return [[None if t is None else t.tolist() for t in tensors], flags, missing, states]

    before = observed()
    for generator in (torch.Generator().manual_seed(0), None):
        attacks.craft(attack, net, x, y, Threat(norm), eps=eps, generator=generator)
    assert observed() == before
    assert torch.is_grad_enabled()


@every_name
def test_an_attack_is_a_frozen_dataclass_with_defaults(name: str) -> None:
    attack = attacks.attack_class(name)()
    assert isinstance(attack, Attack)
    assert hash(attack) == hash(attacks.attack_class(name)())
    for field in dataclasses.fields(attack):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(attack, field.name, 1)


@every_name
def test_every_field_can_be_set_by_a_spec(name: str) -> None:
    attack = attacks.attack_class(name)()
    for key, value in attacks.settings(attack).items():
        (parsed,) = attacks.parse(f"{name}:{key}={spec.written(value)}").values()
        assert parsed == attack
        assert f"{key}={spec.written(value)}" in attacks.usage(name)


@every_name
def test_an_attack_says_what_it_is(name: str) -> None:
    sentence = attacks.describe(name)
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    cls = attacks.attack_class(name)
    module = importlib.import_module(cls.__module__)
    assert cls.__module__ == f"classwise.attacks.{name}"
    assert len(inspect.cleandoc(module.__doc__ or "").splitlines()) > 1 or not dataclasses.fields(cls)
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")  # what dataclass writes where nobody did
