"""The nearest point of a hyperplane in the pixel box: by hand, by sorting, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from classwise.attacks.hyperplane import nearest_step
from classwise.core.threat import Norm, ball_of

every_norm = pytest.mark.parametrize("norm", ["linf", "l2"])


def step(x: list[float], value: float, w: list[float], norm: Norm) -> list[float]:
    found = nearest_step(torch.tensor([x]), torch.tensor([value]), torch.tensor([w]), ball_of(norm))
    return [round(number, 6) for number in found[0].tolist()]


def by_sorting(x: Tensor, value: Tensor, w: Tensor, norm: Norm) -> np.ndarray:
    """The slow way: reach at every λ where a pixel meets the box, in order, and the λ in between by interpolation."""
    steps = []
    for point, target, weight in zip(x.numpy(), value.numpy(), w.numpy(), strict=True):
        away = np.sign(weight * np.sign(target))
        room = np.where(away > 0, point, 1 - point)
        rate = np.abs(weight) if norm == "l2" else np.ones_like(room)
        ends = np.sort(np.concatenate([[0.0], room[rate > 0] / rate[rate > 0]]))
        reach = [(np.abs(weight) * np.minimum(end * rate, room)).sum() for end in ends]
        steps.append(-away * np.minimum(np.interp(abs(target), reach, ends) * rate, room))
    return np.stack(steps)


def problem(share: float, count: int = 30, size: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Points with pixels at 0 and 1, gradients with zeros, and planes at a share of what the box allows."""
    generator = torch.Generator().manual_seed(0)
    x = (1.4 * torch.rand(count, size, generator=generator, dtype=torch.float64) - 0.2).clamp(0, 1)
    w = torch.randn(count, size, generator=generator, dtype=torch.float64).exp() * torch.randn(
        count, size, generator=generator, dtype=torch.float64
    )
    w[:, ::7] = 0
    sign = torch.randn(count, generator=generator, dtype=torch.float64).sign()
    room = torch.where(w * sign[:, None] > 0, x, 1 - x)
    return x, sign * share * (w.abs() * room).sum(1), w


def test_a_plane_inside_the_box_by_hand() -> None:
    assert step([0.5, 0.5], -0.9, [1.0, 2.0], "linf") == [0.3, 0.3]
    assert step([0.5, 0.5], -0.9, [1.0, 2.0], "l2") == [0.18, 0.36]
    assert step([0.5, 0.5], 0.9, [1.0, 2.0], "linf") == [-0.3, -0.3]
    assert step([0.5, 0.5], 0.9, [-1.0, 2.0], "l2") == [0.18, -0.36]


@every_norm
def test_a_pixel_that_meets_the_box_leaves_the_rest_to_the_others(norm: Norm) -> None:
    assert step([0.5, 0.9], -0.5, [1.0, 2.0], norm) == [0.3, 0.1]  # 0.3·1 + 0.1·2


@every_norm
def test_a_plane_beyond_the_box_is_approached_as_far_as_it_goes(norm: Norm) -> None:
    assert step([0.5, 0.9, 0.3], -0.8, [1.0, 2.0, 0.0], norm) == [0.5, 0.1, 0.0]
    assert step([0.5, 0.9, 0.3], -0.7, [1.0, 2.0, 0.0], norm) == [0.5, 0.1, 0.0]  # just reached


@every_norm
@pytest.mark.parametrize("value", [0.0, 1.0, -1e30])
def test_no_gradient_no_step(norm: Norm, value: float) -> None:
    assert step([0.0, 0.5, 1.0], value, [0.0, 0.0, 0.0], norm) == [0.0, 0.0, 0.0]


@every_norm
def test_on_the_plane_there_is_nothing_to_do(norm: Norm) -> None:
    assert step([0.0, 0.5, 1.0], 0.0, [1.0, -2.0, 3.0], norm) == [0.0, 0.0, 0.0]


@every_norm
@pytest.mark.parametrize("scale", [1e-36, 1e-20, 1e30])
def test_the_scale_of_the_gradient_does_not_matter(norm: Norm, scale: float) -> None:
    """Saturated networks have gradients whose squares are zero in float32."""
    x, value, w = (part.float() for part in problem(0.3))
    assert torch.allclose(
        nearest_step(x, value * scale, w * scale, ball_of(norm)), nearest_step(x, value, w, ball_of(norm)), atol=1e-5
    )


@every_norm
@pytest.mark.parametrize("share", [1e-6, 0.01, 0.3, 0.9, 0.9999])
def test_it_is_what_sorting_gives(norm: Norm, share: float) -> None:
    x, value, w = problem(share)
    found = nearest_step(x, value, w, ball_of(norm))
    assert np.allclose(found.numpy(), by_sorting(x, value, w, norm), rtol=0, atol=1e-10)
    assert torch.allclose((w * found).sum(1), -value, rtol=1e-10)
    assert (x + found).min() >= 0
    assert (x + found).max() <= 1
    single = nearest_step(x.float(), value.float(), w.float(), ball_of(norm))
    assert torch.allclose((w * single).sum(1), -value, rtol=3e-6)


@every_norm
def test_no_other_point_of_the_plane_is_nearer(norm: Norm) -> None:
    """Moves along the plane that stay in the box, and come nearer the harder they are tried, are not found."""
    x, value, w = problem(0.4, count=1, size=4)
    best = nearest_step(x, value, w, ball_of(norm))
    turns = torch.randn(20000, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 0.1
    others = best + turns - w * ((turns @ w[0]) / w[0].square().sum())[:, None]
    allowed = ((x + others).min(1).values >= 0) & ((x + others).max(1).values <= 1)
    assert allowed.sum() > 1000
    assert (ball_of(norm).norm(others[allowed]) >= ball_of(norm).norm(best) - 1e-9).all()


@every_norm
def test_many_kinks_one_after_the_other_are_passed(norm: Norm) -> None:
    """Rooms and weights over many orders of magnitude, where Newton's steps are shortest."""
    power = torch.arange(40, dtype=torch.float64)
    x, w = 1.0 - 2.0 ** -power[None], -(1.7**-power)[None].flip(1)
    value = 0.999 * (w.abs() * (1 - x)).sum(1)
    found = nearest_step(x, value, w, ball_of(norm))
    assert np.allclose(found.numpy(), by_sorting(x, value, w, norm), rtol=1e-9)


@every_norm
def test_each_example_is_alone_and_the_layout_is_no_matter(norm: Norm) -> None:
    x, value, w = problem(0.5, size=48)
    value[::2] *= 1e-3  # arrives in other steps than its neighbours
    whole = nearest_step(x, value, w, ball_of(norm))
    for row in (0, 1):
        alone = nearest_step(x[row : row + 1], value[row : row + 1], w[row : row + 1], ball_of(norm))
        assert torch.allclose(alone, whole[row : row + 1], rtol=0, atol=1e-14)
    image, slope = (part.reshape(-1, 3, 4, 4).contiguous(memory_format=torch.channels_last) for part in (x, w))
    assert torch.allclose(nearest_step(image, value, slope, ball_of(norm)).flatten(1), whole, rtol=0, atol=1e-14)
