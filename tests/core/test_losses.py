"""Losses against plain arithmetic in double precision, and where single precision gives out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from classwise.core import losses

CLASSES = 7


def logits(scale: float = 3.0, count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    z = scale * torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)
    return z, torch.randint(CLASSES, (count,), generator=generator)


def gradient(loss: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), z)[0]


@pytest.mark.parametrize("inv_temperature", [1.0, 0.5, 5.0, 50.0])
def test_cross_entropy_is_minus_log_softmax(inv_temperature: float) -> None:
    z, y = logits()
    scaled = z.numpy() * inv_temperature
    scaled = scaled - scaled.max(1, keepdims=True)
    expected = np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(y)), y.numpy()]
    assert np.allclose(losses.cross_entropy(z, y, inv_temperature).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_margin_and_best_other_by_hand() -> None:
    z = torch.tensor([[1.0, 5.0, 2.0], [1.0, 5.0, 2.0], [-3.0, -3.0, -9.0]])
    y = torch.tensor([1, 0, 0])
    assert losses.best_other(z, y).tolist() == [2.0, 5.0, -3.0]
    assert losses.margin(z, y).tolist() == [-3.0, 4.0, 0.0]


def test_the_margin_is_positive_exactly_where_misclassified() -> None:
    z, y = logits()
    assert torch.equal(losses.margin(z, y) > 0, z.argmax(1) != y)
    assert (losses.margin(z, y) > 0).any()
    assert (losses.margin(z, y) < 0).any()


@pytest.mark.parametrize("inv_temperature", [1.0, 0.25, 4.0])
def test_log_odds_are_the_log_of_the_odds(inv_temperature: float) -> None:
    z, y = logits()
    p = (z * inv_temperature).softmax(1).gather(1, y[:, None])[:, 0]
    assert torch.allclose(losses.log_odds(z, y, inv_temperature), torch.log((1 - p) / p), rtol=1e-6)


@pytest.mark.parametrize("inv_temperature", [1.0, 0.25, 4.0])
def test_cross_entropy_is_softplus_of_the_log_odds(inv_temperature: float) -> None:
    z, y = logits()
    found = torch.nn.functional.softplus(losses.log_odds(z, y, inv_temperature))
    assert torch.allclose(found, losses.cross_entropy(z, y, inv_temperature), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("inv_temperature", [1.0, 4.0])
def test_log_odds_and_cross_entropy_point_the_same_way(inv_temperature: float) -> None:
    z, y = logits(scale=1.0)
    z.requires_grad_()
    sound = gradient(losses.log_odds(z, y, inv_temperature), z)
    plain = gradient(losses.cross_entropy(z, y, inv_temperature), z)
    unit_sound, unit_plain = (g / g.norm(dim=1, keepdim=True) for g in (sound, plain))
    assert torch.allclose(unit_sound, unit_plain, atol=1e-9)


def test_log_odds_keep_a_gradient_where_cross_entropy_has_lost_it() -> None:
    z = torch.tensor([[200.0, 0.0, -1.0]], requires_grad=True)
    y = torch.tensor([0])
    assert (gradient(losses.cross_entropy(z, y), z) == 0).all()
    sound = gradient(losses.log_odds(z, y), z)
    sigma = 1 / (1 + np.exp(-1.0))  # softmax of (0, −1)
    assert torch.allclose(sound, torch.tensor([[-1.0, sigma, 1 - sigma]], dtype=torch.float32))


def test_the_temperature_scales_the_gap() -> None:
    z, y = torch.tensor([[4.0, 0.0]]), torch.tensor([0])
    assert losses.log_odds(z, y, 50.0).item() == pytest.approx(-200)
    assert losses.cross_entropy(z, y, 0.25).item() == pytest.approx(np.log1p(np.exp(-1)))


def test_the_ratio_by_hand() -> None:
    z = torch.tensor([[5.0, 1.0, 3.0, -2.0], [5.0, 1.0, 3.0, -2.0]], dtype=torch.float64)
    y = torch.tensor([0, 1])
    assert losses.dlr(z, y).tolist() == pytest.approx([(3 - 5) / (5 - 1), (5 - 1) / (5 - 1)])
    target = torch.tensor([3, 2])
    assert losses.targeted_dlr(z, y, target).tolist() == pytest.approx([-7 / (5 + 0.5), 2 / (5 + 0.5)])


def test_shift_and_scale_do_not_change_the_ratio() -> None:
    z, y = logits()
    target = (y + 3) % CLASSES
    moved = 1000 * z + 77
    assert torch.allclose(losses.dlr(moved, y), losses.dlr(z, y))
    assert torch.allclose(losses.targeted_dlr(moved, y, target), losses.targeted_dlr(z, y, target))


def test_the_ratio_is_positive_exactly_where_misclassified() -> None:
    z, y = logits()
    assert torch.equal(losses.dlr(z, y) > 0, z.argmax(1) != y)
    strongest = z.scatter(1, y[:, None], float("-inf")).argmax(1)
    assert torch.equal(losses.targeted_dlr(z, y, strongest) > 0, z.argmax(1) != y)


def test_too_few_classes_for_the_ratio_leave_the_difference() -> None:
    z = torch.tensor([[2.0, 0.5]], requires_grad=True)
    y = torch.tensor([0])
    assert losses.dlr(z, y).item() == -1.5
    assert gradient(losses.dlr(z, y), z).tolist() == [[-1.0, 1.0]]
    z = torch.tensor([[2.0, 0.5, -1.0]], requires_grad=True)
    last = torch.tensor([2])
    assert losses.targeted_dlr(z, y, last).item() == -3
    assert gradient(losses.targeted_dlr(z, y, last), z).tolist() == [[-1.0, 0.0, 1.0]]


def test_equal_logits_give_no_nan() -> None:
    z = torch.ones(1, 5, requires_grad=True)
    y, target = torch.tensor([1]), torch.tensor([2])
    for loss in (losses.dlr(z, y), losses.targeted_dlr(z, y, target)):
        assert loss.item() == 0
        assert torch.isfinite(gradient(loss, z)).all()
