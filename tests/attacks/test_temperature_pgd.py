"""Temperature-PGD: the mixture of classes on paper, and what single precision does to it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from classwise import attacks
from classwise.attacks.attack import Model, Rows
from classwise.attacks.pgd import Pgd
from classwise.attacks.temperature_pgd import TemperaturePgd
from classwise.core.errors import UserError
from classwise.core.threat import Threat

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

THREE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
ZERO = torch.tensor([0])


@pytest.mark.parametrize(("inv_temperature", "odds"), [(1.0, 2.0), (2.0, 4.0), (0.5, math.sqrt(2))])
@pytest.mark.parametrize("sound", [False, True])
def test_the_temperature_mixes_the_classes(inv_temperature: float, odds: float, sound: bool, linear: Linear) -> None:
    """Rivals with odds 2 : 1 have odds 2^(1/T) : 1 after sharpening, and pull along (1, 0) and (0, 1)."""
    model = linear(THREE, [0.0, math.log(2), 0.0])
    attack = TemperaturePgd(steps=1, step=0.1, start="none", inv_temperature=inv_temperature, sound=sound)
    moved = attacks.craft(attack, model, torch.zeros(1, 2, dtype=torch.float64), ZERO, Threat("l2", 0.5))[0]
    assert (moved[0] / moved[1]).item() == pytest.approx(odds)
    assert moved.norm().item() == pytest.approx(0.1)


def test_temperature_one_is_pgd(linear: Linear, iterates: Iterates) -> None:
    x, model = torch.full((4, 2), 0.5), linear(THREE, [0.5, 0.1, 0.0])
    y = torch.tensor([0, 1, 2, 0])
    ours = iterates(TemperaturePgd(steps=3, inv_temperature=1.0), model, x, y, 0.1, "l2")
    pgd = iterates(Pgd(steps=3), model, x, y, 0.1, "l2")
    assert all(torch.equal(a["x_adv"], b["x_adv"]) for a, b in zip(ours, pgd, strict=True))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("target", [None, 2, "random"])
def test_sound_takes_the_same_steps_where_rounding_does_not_matter(
    norm: str, target: int | str | None, linear: Linear, iterates: Iterates
) -> None:
    model = linear([[1.0, -0.5], [0.2, 0.3], [-0.7, 0.9]])
    x, y = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(6) % 3
    ends = [
        iterates(TemperaturePgd(steps=5, sound=sound, target=target), model, x, y, 0.2, norm)[-1]["x_adv"]
        for sound in (False, True)
    ]
    assert torch.allclose(*ends, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("gap", "plain_moves"), [(10.0, True), (80.0, True), (110.0, False), (1000.0, False)])
def test_plain_float32_dies_at_a_large_gap_and_sound_does_not(gap: float, plain_moves: bool, linear: Linear) -> None:
    x, model = torch.full((1, 2), 0.5), linear([[1.0, -2.0], [-1.0, 2.0]], [gap / 5 + 1, 0.0])
    for norm in ("linf", "l2"):
        plain = attacks.craft(TemperaturePgd(steps=3, start="none"), model, x, ZERO, Threat(norm, 0.1))
        sound = attacks.craft(TemperaturePgd(steps=3, start="none", sound=True), model, x, ZERO, Threat(norm, 0.1))
        assert torch.equal(plain, x) != plain_moves
        assert sound[0, 0] < 0.5 < sound[0, 1]
        if plain_moves:
            assert torch.allclose(plain, sound, atol=1e-6)


def test_the_true_class_loses_its_part_of_the_gradient_first() -> None:
    """From a scaled gap of about 17 on: p_y rounds to one, so p_y − 1 is exactly zero while p_j is not."""
    z = torch.tensor([[20.0, 0.0]], requires_grad=True)
    loss = TemperaturePgd(inv_temperature=1.0).loss(z, ZERO)
    (g,) = torch.autograd.grad(loss.sum(), z)
    assert g[0, 0] == 0
    assert g[0, 1] == pytest.approx(math.exp(-20), rel=1e-4)


@pytest.mark.parametrize("inv_temperature", [0, -2.0])
def test_the_temperature_is_positive(inv_temperature: float) -> None:
    with pytest.raises(UserError, match=rf"inv_temperature must be positive, got {inv_temperature:g}"):
        TemperaturePgd(inv_temperature=inv_temperature)
