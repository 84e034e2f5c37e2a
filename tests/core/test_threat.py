"""The ball: projections and steps by hand, for one radius and for one per example."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import BALLS, L2, LINF, Norm, Threat, ball_of, per_example

NORMS = tuple(BALLS)


def near(found: Tensor, expected: object, tolerance: float = 1e-6) -> bool:
    return torch.allclose(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("eps", "value"), [("8/255", 8 / 255), (0.031, 0.031), (1, 1.0), ("0.5/255", 0.5 / 255)])
def test_a_radius_is_a_number_or_text(eps: float, value: float) -> None:
    assert Threat(eps=eps).eps == value


def test_an_l2_radius_may_pass_one() -> None:
    assert Threat("l2", 3).eps == 3.0


@pytest.mark.parametrize(
    ("norm", "eps", "said"),
    [
        ("linf", 0, "in (0, 1], in units of pixels in [0,1]; got 0."),
        ("linf", -0.1, "got -0.1."),
        ("linf", 8, "got 8. Did you mean 8/255?"),
        ("linf", 256, "got 256."),
        ("l2", 0, "eps must be positive"),
        ("l2", "-1/2", "got -0.5."),
        ("linf", "wide", "got 'wide'."),
        ("l2", float("inf"), "got inf."),
        ("linf", float("nan"), "got nan."),
        ("l1", 0.1, "norm 'l1' is not known; use 'linf' or 'l2'."),
    ],
)
def test_a_bad_threat_is_named(norm: Norm, eps: float, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        Threat(norm, eps)


def test_far_too_large_radii_get_no_guess() -> None:
    with pytest.raises(UserError) as caught:
        Threat("linf", 256)
    assert "Did you mean" not in str(caught.value)


def test_per_example_broadcasts_over_images() -> None:
    x = torch.zeros(2, 3, 4, 4)
    assert per_example(0.5, x) == 0.5
    assert per_example(torch.tensor([0.1, 0.2], dtype=torch.float64), x).shape == (2, 1, 1, 1)
    assert per_example(torch.tensor([0.1, 0.2], dtype=torch.float64), x).dtype == x.dtype


def test_norms_by_hand() -> None:
    delta = torch.tensor([[[3.0, -4.0]], [[0.0, 0.5]]])
    assert LINF.norm(delta).tolist() == [4.0, 0.5]
    assert L2.norm(delta).tolist() == [5.0, 0.5]


def test_the_dual_norm_is_the_most_a_step_of_length_one_can_gain() -> None:
    g = torch.tensor([[3.0, -4.0], [0.0, 0.5]])
    assert LINF.dual(g).tolist() == [7.0, 0.5]
    assert L2.dual(g).tolist() == [5.0, 0.5]
    for ball in BALLS.values():
        step = ball.step(torch.zeros_like(g), g, 1.0)
        assert near(ball.norm(step), [1.0, 1.0])
        assert near((g * step).sum(1), ball.dual(g))
        assert near(ball.norm(ball.unit(g)), [1.0, 1.0])


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_are_where_they_should_be(norm: Norm) -> None:
    ball, x = ball_of(norm), torch.full((500, 3, 4, 4), 0.5)
    eps, key = torch.linspace(0, 0.3, 500), rng.keys(0, torch.arange(500))
    inside, on = (ball.norm(draw(x, eps, key) - x) for draw in (ball.sample, ball.sample_sphere))
    assert (inside <= eps + 1e-6).all()
    assert near(on, eps)
    assert not torch.equal(ball.sample(x, eps, key), ball.sample(x, eps, key + 1))


@pytest.mark.parametrize("norm", ["l1", "Linf", "", None, ["linf"]])
def test_there_is_no_ball_of_an_unknown_norm(norm: Any) -> None:
    with pytest.raises(UserError, match="is not known; use 'linf' or 'l2'"):
        ball_of(norm)
    with pytest.raises(UserError, match="is not known; use 'linf' or 'l2'"):
        Threat(norm, 0.1)


def test_project_linf_by_hand() -> None:
    x = torch.tensor([[0.5, 0.05], [0.5, 0.95]])
    away = torch.tensor([[0.9, -0.5], [0.4, 2.0]])
    assert near(LINF.project(away, x, 0.2), [[0.7, 0.0], [0.4, 1.0]])
    assert near(LINF.project(away, x, torch.tensor([0.02, 0.01])), [[0.52, 0.03], [0.49, 0.96]])


def test_project_l2_by_hand() -> None:
    x = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.9, 0.5]])
    away = torch.tensor([[0.8, 0.9], [0.53, 0.54], [1.2, 0.9]])  # 0.5 away, 0.05 away, 0.5 away
    # Back to length 0.1 along (3, 4)/5; inside already; back to length 0.25 and then cut at 1.
    assert near(L2.project(away, x, torch.tensor([0.1, 0.1, 0.25])), [[0.56, 0.58], [0.53, 0.54], [1.0, 0.7]])
    assert near(L2.project(away, x, 0.1), [[0.56, 0.58], [0.53, 0.54], [0.96, 0.58]])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("each", [False, True])
def test_projection_is_idempotent_and_inside(norm: Norm, each: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 3, 5, 5, generator=generator)
    away = x + torch.randn(x.shape, generator=generator)
    eps = torch.linspace(0.01, 0.8, 64) if each else torch.full((64,), 0.3)
    once = ball_of(norm).project(away, x, eps if each else 0.3)
    assert (ball_of(norm).norm(once - x) <= eps * (1 + 1e-6) + 1e-7).all()
    assert once.min() >= 0
    assert once.max() <= 1
    assert near(ball_of(norm).project(once, x, eps), once, 1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_inside_stays(norm: Norm) -> None:
    x = torch.rand(8, 12, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ball_of(norm).project(x.clone(), x, 0.0), x)
    inside = (x + 1e-3).clamp(0, 1)
    assert near(ball_of(norm).project(inside, x, 0.5), inside, 1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_a_radius_of_zero_gives_the_image(norm: Norm) -> None:
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(2))
    eps = torch.tensor([0.0, 0.1, 0.0, 0.1])
    moved = ball_of(norm).project(x + 0.5, x, eps)
    assert torch.equal(moved[::2], x[::2])
    assert not torch.equal(moved[1::2], x[1::2])


@pytest.mark.parametrize("norm", NORMS)
def test_project_leaves_its_arguments_alone(norm: Norm) -> None:
    x, away = torch.full((2, 3), 0.5), torch.full((2, 3), 7.0)
    ball_of(norm).project(away, x, 0.1)
    assert torch.equal(x, torch.full((2, 3), 0.5))
    assert torch.equal(away, torch.full((2, 3), 7.0))


def test_steepest_step_by_hand() -> None:
    x, g = torch.full((2, 2), 0.5), torch.tensor([[3.0, -4.0], [0.0, 1e-9]])
    assert near(LINF.step(x, g, 0.1), [[0.6, 0.4], [0.5, 0.6]])
    assert near(L2.step(x, g, 0.1), [[0.56, 0.42], [0.5, 0.6]])
    assert near(L2.step(x, g, torch.tensor([0.1, 0.2])), [[0.56, 0.42], [0.5, 0.7]])


@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e-38, 1e-30, 1e-20, 1.0, 1e20, 1e37])
def test_the_l2_direction_survives_every_size_of_gradient(scale: float) -> None:
    x, g = torch.zeros(1, 2), torch.tensor([[3.0, -4.0]]) * scale
    # A subnormal number has few digits left: 3e-44 and 4e-44 are 21 and 29 times the smallest.
    expected = g.double() / g.double().norm()
    assert near(L2.step(x, g, 1.0), expected)
    if scale >= 1e-38:
        assert near(L2.step(x, g, 1.0), [[0.6, -0.8]])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_zero_gradient_moves_nothing(norm: Norm, dtype: torch.dtype) -> None:
    x = torch.full((2, 3), 0.25, dtype=dtype)
    g = torch.zeros_like(x)
    g[1, 0] = 1
    moved = ball_of(norm).step(x, g, 0.5)
    assert moved.dtype == dtype
    assert torch.equal(moved[0], x[0])
    assert moved[1].tolist() == [0.75, 0.25, 0.25]
    assert torch.equal(ball_of(norm).project(moved, x, 1.0), moved)
