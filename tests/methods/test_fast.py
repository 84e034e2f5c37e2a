"""FGSM-RS: one step of 1.25 ε from a uniform start, on the network as it trains."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from classwise import methods
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.methods.fast import Fast
from classwise.methods.madry import Madry
from classwise.methods.method import Batch

CLASSES = ("cat", "dog", "ship")


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        )


def not_asked(x: Tensor) -> Tensor:
    raise AssertionError("the attack of FGSM-RS differentiates the network in train mode")


def batch_of(**fields: Any) -> Batch:
    x = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, 1, 2, 1, 0, 1])
    return Batch(x=x, y=y, key=torch.arange(6), eps=torch.full((6,), 8 / 255), fast=not_asked, **fields)


def by_hand(model: nn.Module, batch: Batch, eps: Tensor, factor: float) -> Tensor:
    """Wong et al.'s algorithm, example by example radius."""
    radius = eps[:, None, None, None]
    noise = radius * (2 * rng.uniform(rng.keys(0, batch.key), batch.x.shape[1:]) - 1)
    start = (batch.x + noise).clamp(0, 1).requires_grad_()
    loss = nn.functional.cross_entropy(model(start), batch.y, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, start)
    delta = (start.detach() + factor * radius * gradient.sign() - batch.x).clamp(-radius, radius)
    return (batch.x + delta).clamp(0, 1)


@pytest.mark.parametrize("margin", [{}, {"dog": 0.5, "ship": 1.5}])
def test_the_step_is_a_quarter_more_than_each_radius(margin: dict[str, float]) -> None:
    model, method = network().train(), Fast(margin=margin)
    batch = batch_of()
    eps = batch.eps * torch.tensor([margin.get(name, 1.0) for name in CLASSES])[batch.y]
    expected = by_hand(model, batch, eps, 1.25)
    found = method.attack(model, batch, method.init(CLASSES))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, by_hand(model, batch, eps, 1.0), atol=1e-3)
    assert ((found - batch.x).flatten(1).abs().amax(1) <= eps + 1e-6).all()


def test_the_network_is_attacked_in_train_mode_and_no_parameter_gradient_is_left() -> None:
    model, method = network().train(), Fast()
    mean = model[1].running_mean.clone()
    method.attack(model, batch_of(), method.init(CLASSES))
    assert not torch.equal(mean, model[1].running_mean)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_of_its_own_goes_before_the_default() -> None:
    model, batch = network().train(), batch_of()
    eps = batch.eps
    found = Fast(step="4/255").attack(model, batch, Fast().init(CLASSES))
    torch.testing.assert_close(found, by_hand(model, batch, eps, 0.5))


def test_the_loss_is_that_of_madry() -> None:
    model, base, fast = network().train(), Madry(weight={"dog": 2}), Fast(weight={"dog": 2})
    batch = batch_of(x_adv=torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(2)))
    state = fast.init(CLASSES)
    assert torch.equal(fast.loss(model, batch, state).value, base.loss(model, batch, state).value)


def test_from_a_recipe() -> None:
    assert methods.parse("fast", {"step": "10/255"}) == Fast(step=10 / 255)
    with pytest.raises(UserError, match="step must be positive"):
        Fast(step=-1)
    with pytest.raises(UserError, match=r"unknown value of Fast\.mode 'evall'; did you mean 'eval'"):
        Fast(mode="evall")
