"""MART: the published loss, gradients through all of it, and its inner attack."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from classwise import methods
from classwise.attacks.pgd import Start
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.methods.mart import Mart, weighted_kl
from classwise.methods.method import Batch

CLASSES = ("cat", "dog", "ship", "frog")


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, len(CLASSES)))


def batch_of(model: Callable[[Tensor], Tensor], **fields: Any) -> Batch:
    x = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    x_adv = (x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    y = torch.tensor([0, 1, 2, 3, 1, 1])
    return Batch(x=x, y=y, key=torch.arange(6), eps=torch.full((6,), 0.1), fast=model, x_adv=x_adv, **fields)


def published(z: Tensor, z_adv: Tensor, y: int, lam: float) -> Tensor:
    """One example's loss, written out class by class."""
    p, q = (torch.stack([e / sum(exps) for e in exps]) for exps in (list(z.exp()), list(z_adv.exp())))
    strongest = max((q[k] for k in range(len(q)) if k != y), key=lambda value: value.item())
    boosted = -q[y].log() - (1.0001 - strongest + 1e-12).log()
    divergence = sum(p[k] * (p[k].log() - (q[k] + 1e-12).log()) for k in range(len(p)))
    return boosted + lam * divergence * (1.0000001 - p[y])


@pytest.mark.parametrize("joint", [False, True])
def test_loss_and_its_gradient_are_the_published_ones(joint: bool) -> None:
    model, method = network(), Mart(beta={"dog": 0.5})
    batch = batch_of(model, joint=joint)
    loss = method.loss(model, batch, method.init(CLASSES))
    z, z_adv = model(batch.x), model(batch.adversarial)
    lams = [0.5 if y == 1 else 5.0 for y in batch.y.tolist()]
    expected = torch.stack([published(*row) for row in zip(z, z_adv, batch.y.tolist(), lams, strict=True)])
    torch.testing.assert_close(loss.value, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(loss.logits, z_adv)
    found, wanted = (torch.autograd.grad(value.mean(), list(model.parameters())) for value in (loss.value, expected))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_certain_answers_stay_finite() -> None:
    """p(x') = 0 for the own class and 1 for another: both logarithms are at their constants."""
    model, method = nn.Flatten(), Mart(beta=2)
    x, x_adv = torch.tensor([[200.0, 0.0], [0.0, 200.0]]).reshape(2, 2, 1, 1)
    batch = Batch(x=x[None], y=torch.tensor([0]), key=torch.arange(1), eps=torch.ones(1), fast=model, x_adv=x_adv[None])
    value = method.loss(model, batch, method.init(("a", "b"))).value
    assert value.item() == pytest.approx(200 - math.log(1e-4), rel=1e-4)
    stability = weighted_kl(model(batch.x), model(batch.adversarial), batch.y)
    assert stability.item() == pytest.approx(-math.log(1e-12) * (torch.tensor(1.0000001) - 1).item())


def test_inner_attack_is_the_plain_loop() -> None:
    model, method = network(), Mart(steps=4, step=0.03)
    batch = batch_of(model)
    x = batch.x + 0.001 * rng.normal(rng.keys(0, batch.key), batch.x.shape[1:])
    for _ in range(4):
        x.requires_grad_()
        loss = nn.functional.cross_entropy(model(x), batch.y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        x = x.detach() + 0.03 * gradient.sign()
        x = torch.min(torch.max(x, batch.x - 0.1), batch.x + 0.1).clamp(0, 1)
    found = method.attack(model, batch, method.init(CLASSES))
    torch.testing.assert_close(found, x)


@pytest.mark.parametrize(("start", "leaves"), [("gaussian", True), ("uniform", False)])
def test_the_gaussian_start_is_not_clamped_and_the_uniform_one_is(start: Start, leaves: bool) -> None:
    model, seen = network(), list[Tensor]()

    def watched(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return model(x)  # type: ignore[no-any-return]

    method = Mart(steps=2, start=start)
    batch = batch_of(watched)
    method.attack(
        model, replace(batch, x=batch.x.round()), method.init(CLASSES)
    )  # black and white: half the noise leaves
    outside = [bool(((x < 0) | (x > 1)).any()) for x in seen]
    assert outside == [leaves, False]


def test_uniform_class_vectors_are_the_base_method() -> None:
    model, four = network(), (1.0,) * 4
    base, classwise = Mart(), Mart(weight=four, margin=four, temperature={"*": 1}, beta=(5.0,) * 4)
    batch, states = batch_of(model), (base.init(CLASSES), classwise.init(CLASSES))
    assert torch.equal(base.attack(model, batch, states[0]), classwise.attack(model, batch, states[1]))
    assert torch.equal(base.loss(model, batch, states[0]).value, classwise.loss(model, batch, states[1]).value)


def test_weights_and_temperatures_of_classes() -> None:
    model, method = network(), Mart(weight={"dog": 3}, temperature={"ship": 2})
    batch, base = batch_of(model), Mart()
    value = method.loss(model, batch, method.init(CLASSES)).value
    plain = base.loss(model, batch, base.init(CLASSES)).value
    torch.testing.assert_close(value[[0, 1, 3]], plain[[0, 1, 3]] * torch.tensor([1.0, 3.0, 1.0]))
    z, z_adv = model(batch.x)[2] / 2, model(batch.adversarial)[2] / 2
    torch.testing.assert_close(value[2], published(z, z_adv, 2, 5.0), atol=1e-5, rtol=1e-5)


def test_from_a_recipe() -> None:
    method = methods.parse("mart", {"beta": "6", "steps": "7"})
    assert (method, methods.name_of(method)) == (Mart(beta=6.0, steps=7), "mart")
    with pytest.raises(UserError, match="unknown setting of mart 'betta'; did you mean 'beta'"):
        methods.parse("mart", {"betta": 6})
    with pytest.raises(UserError, match="beta has 2 values, but there are 4 classes"):
        Mart(beta=(1.0, 2.0)).init(CLASSES)
