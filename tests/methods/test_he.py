"""Hypersphere embedding and its two schedules: published losses, inner attacks, scales by epoch and by probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from classwise import methods
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.methods.he import He
from classwise.methods.he_cmp import HeCmp, scale_for
from classwise.methods.he_lis import HeLis
from classwise.methods.method import Batch
from classwise.models.networks.cosine import CosineHead

CLASSES = tuple("abcdefg")
COUNT = len(CLASSES)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), CosineHead(6, COUNT)).eval()


def batch_of(model: Callable[[Tensor], Tensor], **fields: Any) -> Batch:
    x = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    x_adv = (x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    y = torch.tensor([0, 1, 2, 3, 1, 6])
    return Batch(x=x, y=y, key=torch.arange(6), eps=torch.full((6,), 0.1), fast=model, x_adv=x_adv, **fields)


def published(z: Tensor, y: int, s: float, m: float) -> Tensor:
    """HE of one example by direct exponentials."""
    own = (s * (z[y] - m)).exp()
    return -(own / (own + sum((s * z[k]).exp() for k in range(len(z)) if k != y))).log()


def divergence(z: Tensor, z_adv: Tensor, s: float) -> Tensor:
    p, q = ((s * each).exp() / (s * each).exp().sum() for each in (z, z_adv))
    return (p * (p / q).log()).sum()


def cosines(spread: float = 0.3, count: int = 200, classes: int = 10) -> Tensor:
    return spread * (2 * torch.rand(count, classes, generator=torch.Generator().manual_seed(5)) - 1)


class TestLoss:
    def check(self, method: He, expected: Callable[[Tensor, Tensor, int], Tensor], **fields: Any) -> None:
        """Values to 1e-5, and so are the gradients of all weights."""
        model = network()
        batch = batch_of(model, **fields)
        value = method.loss(model, batch, method.init(CLASSES)).value
        rows = zip(model(batch.x), model(batch.adversarial), batch.y.tolist(), strict=True)
        wanted = torch.stack([expected(*row) for row in rows])
        torch.testing.assert_close(value, wanted, atol=1e-5, rtol=1e-5)
        grads = [torch.autograd.grad(each.mean(), list(model.parameters())) for each in (value, wanted)]
        torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-5)

    def test_on_pgd_at(self) -> None:
        self.check(He(), lambda z, z_adv, y: published(z_adv, y, 10, 0.2))
        self.check(He(scale=4, angular_margin=0.5), lambda z, z_adv, y: published(z_adv, y, 4, 0.5))

    @pytest.mark.parametrize("joint", [False, True])
    def test_on_trades(self, joint: bool) -> None:
        self.check(
            He(base="trades"),
            lambda z, z_adv, y: published(z, y, 15, 0.2) + 6 * divergence(z, z_adv, 15),
            joint=joint,
        )
        self.check(
            He(base="trades", scale=5, angular_margin=0, beta={"b": 0.5}),
            lambda z, z_adv, y: published(z, y, 5, 0) + (0.5 if y == 1 else 6) * divergence(z, z_adv, 5),
            joint=joint,
        )

    def test_weight_and_temperature_of_a_class(self) -> None:
        method = He(weight={"b": 3}, temperature={"b": 2})
        self.check(
            method, lambda z, z_adv, y: 3 * published(z_adv, y, 5, 0.2) if y == 1 else published(z_adv, y, 10, 0.2)
        )

    def test_scales_beyond_exponentials(self) -> None:
        model = network()
        value = He(scale=1000).loss(model, batch_of(model), He().init(CLASSES)).value
        assert value.isfinite().all()

    def test_records_are_of_the_scaled_cosines_without_margin(self) -> None:
        model = network()
        batch = batch_of(model)
        torch.testing.assert_close(He().loss(model, batch, He().init(CLASSES)).logits, 10 * model(batch.adversarial))

    def test_lis_and_cmp_have_no_margin(self) -> None:
        self.check(HeLis(), lambda z, z_adv, y: published(z_adv, y, 1 + 0.3 * 74, 0), epoch=3.7, epochs=10)
        model, batch, method = network(), batch_of(network()), HeCmp()
        s = method.scale_at(batch, lambda: model(batch.adversarial))
        value = method.loss(model, batch, method.init(CLASSES)).value
        rows = zip(model(batch.adversarial), batch.y.tolist(), s.tolist(), strict=True)
        torch.testing.assert_close(value, torch.stack([published(z, y, s, 0) for z, y, s in rows]))


class TestAttack:
    def plain_loop(self, batch: Batch, objective: Callable[[Tensor], Tensor]) -> Tensor:
        x = batch.x + 0.001 * rng.normal(rng.keys(0, batch.key), batch.x.shape[1:])
        for _ in range(4):
            x.requires_grad_()
            (gradient,) = torch.autograd.grad(objective(x), x)
            x = x.detach() + 0.03 * gradient.sign()
            x = torch.min(torch.max(x, batch.x - 0.1), batch.x + 0.1).clamp(0, 1)
        return x

    def crafted(self, method: He, batch: Batch) -> Tensor:
        return method.attack(network(), batch, method.init(CLASSES))

    def test_on_pgd_at_without_margin(self) -> None:
        model = network()
        batch = batch_of(model)
        wanted = self.plain_loop(
            batch,
            lambda x: sum((published(z, int(y), 10, 0) for z, y in zip(model(x), batch.y, strict=True)), x.sum() * 0),
        )
        torch.testing.assert_close(self.crafted(He(steps=4, step=0.03), batch), wanted)

    def test_on_trades(self) -> None:
        model = network()
        batch = batch_of(model)
        clean = model(batch.x).detach()
        wanted = self.plain_loop(
            batch, lambda x: torch.stack([divergence(*pair, 15) for pair in zip(clean, model(x), strict=True)]).sum()
        )
        torch.testing.assert_close(self.crafted(He(base="trades", steps=4, step=0.03), batch), wanted)

    def test_lis_attacks_with_the_scale_of_the_epoch(self) -> None:
        batch = batch_of(network(), epoch=3.7, epochs=10)
        lis, he = HeLis(steps=4, step=0.03), He(steps=4, step=0.03, scale=1 + 0.3 * 74)
        assert torch.equal(self.crafted(lis, batch), self.crafted(he, batch))

    def test_cmp_attacks_with_the_scales_of_the_clean_images(self) -> None:
        model = network()
        batch = batch_of(model, epoch=5, epochs=10)
        method = HeCmp(steps=4, step=0.03)
        s = method.scale_at(batch, lambda: model(batch.x))[:, None]
        assert s.unique().numel() == 6
        loss = nn.CrossEntropyLoss(reduction="sum")
        wanted = self.plain_loop(batch, lambda x: loss(s * model(x), batch.y))
        torch.testing.assert_close(self.crafted(method, batch), wanted)


@pytest.mark.parametrize("name", ["he", "he_lis", "he_cmp"])
@pytest.mark.parametrize("base", ["madry", "trades"])
def test_uniform_class_vectors_are_the_base_method(name: str, base: str) -> None:
    ones = (1.0,) * COUNT
    vectors = {"weight": ones, "margin": ones, "temperature": ones, "beta": (6.0,) * COUNT}
    plain, classwise = (methods.parse(name, {"base": base, **more}) for more in ({}, vectors))
    model = network()
    batch = batch_of(model, epoch=2.5, epochs=10)
    points = [method.attack(model, batch, method.init(CLASSES)) for method in (plain, classwise)]
    values = [method.loss(model, batch, method.init(CLASSES)).value for method in (plain, classwise)]
    assert torch.equal(*points)
    assert torch.equal(*values)


class TestLis:
    @pytest.mark.parametrize(
        ("epoch", "scale"), [(0, 1), (0.99, 1), (1, 1.74), (50, 38), (99.9, 1 + 0.99 * 74), (100, 75)]
    )
    def test_the_papers_schedule(self, epoch: float, scale: float) -> None:
        batch = batch_of(network(), epoch=epoch, epochs=100)
        assert HeLis().scale_at(batch, list) == pytest.approx(scale)  # type: ignore[arg-type]

    def test_it_stays_where_it_has_come_to(self) -> None:
        method, batch = HeLis(first_scale=2, last_scale=10, until=0.5), batch_of(network(), epochs=8)
        found = [method.scale_at(replace(batch, epoch=epoch), list) for epoch in range(8)]  # type: ignore[arg-type]
        assert found == [2, 4, 6, 8, 10, 10, 10, 10]


class TestCmp:
    @pytest.mark.parametrize("epoch", [0, 0.9, 20.5, 45, 80, 89])
    def test_the_largest_probability_of_every_example_is_the_epochs(self, epoch: float) -> None:
        z, batch = cosines(), batch_of(network(), epoch=epoch, epochs=100)
        s = HeCmp(scale_cap=1e6).scale_at(batch, lambda: z)
        p = 0.2 + int(epoch) / 90 * 0.8
        torch.testing.assert_close((s[:, None] * z).softmax(1).amax(1), torch.full((200,), p), atol=1e-4, rtol=0)

    @pytest.mark.parametrize("classes", [2, 3, 100])
    @pytest.mark.parametrize("spread", [0.01, 1.0])
    def test_any_number_of_classes(self, classes: int, spread: float) -> None:
        ranked = cosines(spread, classes=classes).double().sort(1, descending=True).values
        gaps = ranked[:, :1] - ranked[:, 1:]
        for p in (1.01 / classes, 0.6, 0.999):
            found = (scale_for(gaps, p, 1e9)[:, None] * ranked).softmax(1)[:, 0]
            torch.testing.assert_close(found, torch.full_like(found, p), atol=1e-6, rtol=0)

    def test_equal_gaps_have_a_closed_form(self) -> None:
        gap, p, classes = 0.4, 0.7, 5
        s = scale_for(torch.full((1, classes - 1), gap), p, 1e3)
        torch.testing.assert_close(s, torch.tensor([4 * 0.7 / 0.3]).log() / gap)

    def test_one_is_capped_and_so_is_a_tie(self) -> None:
        z = torch.tensor([[0.9, -0.1, -0.1], [0.5, 0.5, -1.0], [0.2, 0.2, 0.2]])
        batch = batch_of(network(), epoch=95, epochs=100)
        s = HeCmp().scale_at(batch, lambda: z)
        assert (s[0] * z[0]).softmax(0)[0].item() == pytest.approx(1 - 1e-4, abs=1e-6)
        assert s[1:].tolist() == [100, 100]
        assert (HeCmp(p_cap=0.9, scale_cap=2).scale_at(batch, lambda: z) == 2).all()

    def test_one_scale_for_the_batch_is_averaged_over_processes(self) -> None:
        z = cosines()
        seen: list[Tensor] = []

        def average(value: Tensor) -> Tensor:
            seen.append(value)
            return value * 2

        alone, shared = (
            batch_of(network(), epoch=50, epochs=100),
            batch_of(network(), epoch=50, epochs=100, average=average),
        )
        method = HeCmp(per="batch")
        one = method.scale_at(alone, lambda: z)
        ranked = z.sort(1, descending=True).values.mean(0)
        assert one.shape == (1,)
        assert (one * ranked).softmax(0)[0].item() == pytest.approx(0.2 + 50 / 90 * 0.8, abs=1e-5)
        torch.testing.assert_close(method.scale_at(shared, lambda: z), one / 2)  # twice the gaps, half the scale
        assert len(seen) == 1

    def test_no_gradient_passes_through_the_scale(self) -> None:
        z = cosines().requires_grad_()
        assert not HeCmp().scale_at(batch_of(network()), lambda: z).requires_grad

    def test_one_scale_trains_and_attacks(self) -> None:
        model, method = network(), HeCmp(per="batch", steps=2)
        batch = batch_of(model)
        state = method.init(CLASSES)
        assert method.attack(model, batch, state).shape == batch.x.shape
        assert method.loss(model, batch, state).value.shape == (6,)


def test_a_model_without_cosines_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, COUNT))
    nn.init.zeros_(model[1].weight)  # type: ignore[arg-type]
    nn.init.constant_(model[1].bias, 3.0)  # type: ignore[arg-type]
    for base in ("madry", "trades"):
        method = methods.parse("he", {"base": base})
        with pytest.raises(UserError, match=r"outputs reach 3.*resnet-18:head=cosine"):
            method.loss(model, batch_of(model), method.init(CLASSES))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("he", {"base": "trade"}, "did you mean 'trades'"),
        ("he", {"scale": 0}, "scale must be positive, got 0"),
        ("he", {"angular_margin": -0.1}, "at least 0 and at most 2, got -0.1. It is a difference of cosines"),
        ("he_lis", {"scale": 10}, "scale=10 is for he; here it follows from first_scale and last_scale"),
        ("he_lis", {"until": 1.5}, "until must be positive and at most 1"),
        ("he_lis", {"first_scale": -1}, "first_scale must be positive, got -1"),
        ("he_cmp", {"scale": 10}, "here it follows from first_p and last_p"),
        ("he_cmp", {"p_cap": 1}, "p_cap must be positive and below 1, got 1. No finite scale"),
        ("he_cmp", {"first_p": 20}, r"first_p must be positive and at most 1, got 20"),
        ("he_cmp", {"scale_cap": 0}, "scale_cap must be positive"),
        ("he_cmp", {"per": "epoch"}, "unknown value of he_cmp.per 'epoch'"),
    ],
)
def test_what_is_wrong_with_a_setting(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        methods.parse(name, options)


def test_a_maximum_probability_must_be_one_of_so_many_classes() -> None:
    with pytest.raises(UserError, match=r"largest of 5 probabilities is never 0\.2.*above 1/5"):
        HeCmp().init(CLASSES[:5])
    assert "beta" not in HeCmp(first_p=0.3).init(CLASSES[:5])


@pytest.mark.parametrize("name", ["he", "he_lis", "he_cmp"])
def test_settings_make_the_method_again(name: str) -> None:
    method = methods.parse(name, {"base": "trades", "steps": 3})
    assert methods.parse(name, methods.settings(method)) == method
