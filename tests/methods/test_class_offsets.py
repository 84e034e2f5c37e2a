"""Class offsets: the loss against shifted logits, the game's steps by hand, and what does not know of the offsets."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_same_loss

from classwise.core.errors import UserError
from classwise.methods.class_offsets import ClassOffsets
from classwise.methods.trades import Trades

OFFSET = torch.tensor([-0.3, 0.1, 0.4])


def valid(correct=(8, 2, 10), support=(10, 10, 20)):
    return by_hand.records(clean=by_hand.answers(support, support), pgd=by_hand.answers(correct, support))


def with_offset(method):
    return {**method.init(NAMES), "offset": OFFSET}


def test_both_terms_of_the_loss_have_shifted_logits():
    net = by_hand.model().double()
    given = by_hand.batch(net)
    batch = by_hand.batch(net, x=given.x.double(), x_adv=given.adversarial.double())
    p, q = (torch.softmax(net(x) + OFFSET.double(), 1) for x in (batch.x, batch.adversarial))
    expected = (-p[range(len(p)), batch.y].log() + 6 * (p * (p / q).log()).sum(1)).mean()
    assert_same_loss(ClassOffsets().loss(net, batch, with_offset(ClassOffsets())), expected, net)


def test_neither_the_attack_nor_the_training_records_know_of_the_offsets():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = ClassOffsets(steps=3)
    assert torch.equal(
        by_hand.attacked(method, net, batch, with_offset(method)),
        by_hand.attacked(Trades(steps=3), net, batch, Trades().init(NAMES)),
    )
    torch.testing.assert_close(method.loss(net, batch, with_offset(method)).logits, net(batch.adversarial))


def test_without_offsets_it_is_trades():
    net = by_hand.model()
    batch = by_hand.batch(net)
    found, base = (m.loss(net, batch, m.init(NAMES)).value for m in (ClassOffsets(), Trades()))
    torch.testing.assert_close(found, base)


def test_steps_of_the_game_by_hand():
    method = ClassOffsets(strength=0.8, decay=0.5)
    assert method.validates_first
    first = method.update(method.init(NAMES), None, valid(), 0)
    np.testing.assert_allclose(first["offset"], 0.8 * np.array([0.3, -0.3, 0.0]), atol=1e-6)
    second = method.update(first, None, valid((5, 4, 12)), 1)
    np.testing.assert_allclose(second["offset"], first["offset"].numpy() + 0.4 * np.array([0.0, -0.1, 0.1]), atol=1e-6)


def test_a_class_without_held_out_images_keeps_its_offset():
    state = ClassOffsets().update(with_offset(ClassOffsets()), None, valid((8, 0, 10), (10, 0, 20)), 0)
    np.testing.assert_allclose(state["offset"], [-0.3 + 0.8 * 0.15, 0.1, 0.4 - 0.8 * 0.15], atol=1e-6)


def test_it_needs_held_out_images():
    with pytest.raises(UserError, match="none are held out"):
        ClassOffsets().update(ClassOffsets().init(NAMES), None, None, 0)
