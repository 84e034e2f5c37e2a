"""Noise and the identity: the two attacks that look at no gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from scipy import stats

from classwise import attacks
from classwise.attacks.attack import Model, Rows
from classwise.attacks.clean import Clean
from classwise.attacks.noise import Noise
from classwise.core.errors import UserError
from classwise.core.threat import L2, Norm, Threat

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

MODEL = [[1.0] * 6, [0.0] * 6]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_boundary_noise_is_on_the_boundary(norm: Norm, linear: Linear) -> None:
    x, eps = torch.full((50, 6), 0.5), torch.linspace(0.05, 0.3, 50)
    y = torch.zeros(50, dtype=torch.int64)
    delta = (
        attacks.craft(
            Noise(where="boundary"),
            linear(MODEL),
            x,
            y,
            Threat(norm),
            eps=eps,
            generator=torch.Generator().manual_seed(0),
        )
        - x
    )
    if norm == "linf":
        assert torch.allclose(delta.abs(), eps[:, None].expand(50, 6))
        assert 0.4 < (delta > 0).double().mean() < 0.6
    else:
        assert torch.allclose(L2.norm(delta), eps)
        assert abs(torch.corrcoef(delta[:, :2].T)[0, 1]) < 0.5


def test_uniform_noise_fills_the_ball(linear: Linear, iterates: Iterates) -> None:
    x, y = torch.full((300, 6), 0.5), torch.zeros(300, dtype=torch.int64)
    points = torch.stack([rows["x_adv"] - x for rows in iterates(Noise(draws=5), linear(MODEL), x, y, 0.2)])
    assert stats.kstest(points.flatten().numpy() / 0.2, "uniform", args=(-1, 2)).pvalue > 1e-3
    balls = torch.stack([rows["x_adv"] - x for rows in iterates(Noise(draws=5), linear(MODEL), x, y, 0.2, "l2")])
    assert stats.kstest((balls.norm(dim=2) / 0.2).pow(6).flatten().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("where", ["uniform", "boundary"])
def test_every_draw_is_another_point_and_every_point_is_asked_about(
    where: str, linear: Linear, iterates: Iterates
) -> None:
    model = linear([[1.0] * 60, [0.0] * 60])
    x, y = torch.full((4, 60), 0.5), torch.zeros(4, dtype=torch.int64)
    seen = iterates(Noise(draws=6, where=where), model, x, y, 0.2)
    assert len(seen) == 6
    points = torch.stack([rows["x_adv"] for rows in seen])
    assert len(points.flatten(0, 1).unique(dim=0)) == 24
    assert [rows["t"][0].item() for rows in seen] == list(range(6))
    for before, after in itertools.pairwise(seen):
        assert torch.equal(after["logits"], model(before["x_adv"]))


def test_noise_draws_other_numbers_than_a_random_start(linear: Linear, iterates: Iterates) -> None:
    x, y = torch.full((4, 6), 0.5), torch.zeros(4, dtype=torch.int64)
    pgd = attacks.parse("pgd:steps=1")["pgd"]
    first, start = (iterates(attack, linear(MODEL), x, y, 0.2)[0]["x_adv"] for attack in (Noise(), pgd))
    assert not torch.isclose(first, start).all(1).any()


def test_bad_settings_of_noise_are_named() -> None:
    with pytest.raises(UserError, match="draws must be at least 1, got 0"):
        Noise(draws=0)
    with pytest.raises(UserError, match=r"unknown value of Noise\.where 'border'; did you mean 'boundary'"):
        Noise(where="border")  # type: ignore[arg-type]


def test_clean_asks_the_model_nothing() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("clean has nothing to ask")

    x = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(attacks.craft(Clean(), model, x, torch.zeros(3, dtype=torch.int64), Threat("linf", 0.1)), x)
    assert (Clean().steps, Clean().restarts) == (0, 1)
