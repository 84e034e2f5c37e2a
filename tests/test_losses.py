"""Losses against plain arithmetic in double precision, and where single precision gives out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from classwise import losses

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
