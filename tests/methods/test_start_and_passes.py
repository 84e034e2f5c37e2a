"""Where the inner attack of every method starts, and in which order a batch goes through the network."""

from __future__ import annotations

import dataclasses
from typing import Any

import by_hand
import pytest
import torch
from by_hand import NAMES
from torch import Tensor, nn

from classwise import methods
from classwise.core import rng
from classwise.methods.csl import Csl
from classwise.methods.dafa import Dafa
from classwise.methods.madry import Madry
from classwise.methods.rst import Rst
from classwise.methods.trades import Trades
from for_each import for_each

ATTACKING = [name for name in methods.names() if issubclass(methods.method_class(name), Madry)]
OWN = {"he_cmp": {"first_p": 0.5}}  # above one in three classes


class Asked(nn.Module):
    """A network that remembers the images it was differentiated at."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.points = net, []

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            self.points.append(x.detach().clone())
        return self.net(x).tanh()  # cosines, for hypersphere embedding


def first_point(method: methods.Method, start: dict[str, Any] | None = None) -> tuple[Tensor, Tensor]:
    """The first point a method differentiates at, for black images, and the Gaussian start as it falls."""
    net = Asked(by_hand.model())
    batch = by_hand.batch(net, x=torch.zeros(6, 1, 1, 5), x_adv=None, teacher=by_hand.model(1))
    method.attack(net, batch, {**method.init(NAMES), **(start or {})})
    return net.points[0], 0.001 * rng.normal(rng.keys(0, batch.key), (1, 1, 5), 0)


@for_each("step", [None, 0.007])
@for_each("name", [name for name in ATTACKING if name != "bat"])  # whose official code clamps it
def test_a_gaussian_start_is_not_clamped(name, step):
    point, start = first_point(
        methods.parse(name, {**OWN.get(name, {}), "start": "gaussian", "step": step, "mode": "eval"})
    )
    assert (start < 0).any()
    torch.testing.assert_close(point, start)


@pytest.mark.parametrize("target", ["random", "likely", "weakest"])
def test_nor_is_it_towards_a_target(target):
    point, start = first_point(Csl(target=target, step=0.007), {"aim": torch.tensor(1)})
    torch.testing.assert_close(point, start)


@for_each("name", [name for name in ATTACKING if name not in ("ard", "iad")])  # whose official codes do not
def test_a_uniform_start_is_clamped(name):
    point, _ = first_point(
        methods.parse(name, {**OWN.get(name, {}), "start": "uniform", "step": 0.007, "mode": "eval"})
    )
    assert point.min() == 0


@pytest.mark.parametrize(
    ("method", "order"), [(Trades(), "ca"), (Trades(passes=3), "cac"), (Rst(), "ac"), (Dafa(step=0.007), "ac")]
)
def test_the_order_of_passes_is_the_official_codes(method, order):
    net = by_hand.model()
    batch = by_hand.batch(net)
    seen = []
    net.register_forward_pre_hook(lambda module, inputs: seen.append("c" if inputs[0] is batch.x else "a"))
    method.loss(net, batch, method.init(NAMES))
    assert "".join(seen) == order
    seen.clear()
    method.loss(net, dataclasses.replace(batch, joint=True), method.init(NAMES))
    assert len(seen) == len(order) - 1
