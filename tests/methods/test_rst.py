"""RST: TRADES on images of which some have no label."""

from __future__ import annotations

import dataclasses

import by_hand
import pytest
import torch
from by_hand import NAMES, assert_same_loss, terms
from torch import nn

from classwise.core.errors import UserError
from classwise.methods.rst import Rst
from classwise.methods.trades import Trades


def test_with_all_labels_it_is_trades_exactly():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method, base = Rst(), Trades()
    assert torch.equal(*(m.loss(net, batch, m.init(NAMES)).value for m in (method, base)))
    assert torch.equal(*(by_hand.attacked(m, net, batch, m.init(NAMES)) for m in (method, base)))


@pytest.mark.parametrize("joint", [False, True])
def test_unlabelled_images_have_a_kl_term_only(joint):
    net = by_hand.model()
    batch = by_hand.batch(net, (0, -1, 2, -1, 1), joint=joint)
    method = Rst(beta=(3.0, 6.0, 9.0), weight=(1.0, 1.0, 2.0))
    natural, boundary = terms(net, dataclasses.replace(batch, y=batch.y.clamp_min(0)))
    weight, beta = torch.tensor([1.0, 1, 2, 1, 1]), torch.tensor([3.0, 6, 9, 6, 6])
    expected = (weight * natural)[batch.y >= 0].sum() / 3 + (weight * beta * boundary).mean()
    assert_same_loss(method.loss(net, batch, method.init(NAMES)), expected, net)


def test_label_minus_one_is_not_the_last_class():
    net = by_hand.model()
    batch = by_hand.batch(net, (-1, 2))
    method = Rst(margin=(1.0, 1.0, 0.01), temperature=(1.0, 1.0, 50.0))
    moved = (by_hand.attacked(method, net, batch, method.init(NAMES)) - batch.x).abs().flatten(1).amax(1)
    assert float(moved[0]) == pytest.approx(0.1, abs=1e-6)
    assert float(moved[1]) == pytest.approx(0.001, abs=1e-6)


def test_a_batch_without_any_label_is_kl_alone():
    net = by_hand.model()
    batch = by_hand.batch(net, (-1, -1))
    method = Rst()
    expected = 6 * terms(net, dataclasses.replace(batch, y=batch.y.clamp_min(0)))[1].mean()
    assert_same_loss(method.loss(net, batch, method.init(NAMES)), expected, net)


def test_the_adversarial_images_go_first():
    seen = []

    class Recorder(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = by_hand.model()

        def forward(self, x):
            seen.append(x)
            return self.net(x)

    net = Recorder()
    batch = by_hand.batch(net)
    Rst().loss(net, batch, Rst().init(NAMES))
    assert [x is batch.x for x in seen] == [False, True]


def test_there_are_two_passes():
    with pytest.raises(UserError, match="passes"):
        Rst(passes=3)
