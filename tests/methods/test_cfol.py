"""CFOL's opponent against its rule written out draw by draw, in both forms."""

from __future__ import annotations

import dataclasses
import math

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_equal_loss

from classwise.core.losses import cross_entropy
from classwise.methods import Loss
from classwise.methods.cfol import Cfol

LABELS = (0, 1, 2, 0, 1, 0, 2, 1)


def chances(w, gamma=0.5):
    top = max(w)
    e = [math.exp(value - top) for value in w]
    return [gamma / len(w) + (1 - gamma) * value / sum(e) for value in e]


def exact(method):
    """Model, batch and state in double precision, the thirds too."""
    net, batch, state = by_hand.exact(method, LABELS)
    third = torch.full((3,), 1 / 3, dtype=torch.float64)
    return net, batch, {**state, "p": third, "share": third}


def answers(step):
    """Logits of a batch whose errors change from step to step."""
    return torch.randn(len(LABELS), 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


@pytest.mark.parametrize("form", ["sampling", "reweighted"])
def test_the_opponent_over_twenty_batches(form):
    method = Cfol(form=form, eta=0.01)
    net, batch, state = exact(method)
    w = [0.0, 0.0, 0.0]
    for step in range(20):
        p = chances(w)
        np.testing.assert_allclose(state["p"], p, atol=1e-12, rtol=0)
        z = answers(step)
        for i, y in enumerate(LABELS):
            if int(z[i].argmax()) != y:
                w[y] += 0.01 / (p[y] if form == "sampling" else 1 / 3)
        state = method.after_step(net, batch, state, Loss(torch.zeros(len(LABELS)), z))
        np.testing.assert_allclose(state["w"], w, atol=1e-12, rtol=0)
    assert state["p"].amax() - state["p"].amin() > 0.01


def test_errors_are_summed_over_all_processes():
    method = Cfol(eta=0.01)
    net, batch, state = exact(method)
    loss = Loss(torch.zeros(len(LABELS)), answers(0))
    one = method.after_step(net, batch, state, loss)["w"]
    two = method.after_step(net, dataclasses.replace(batch, total=lambda part: 2 * part), state, loss)["w"]
    torch.testing.assert_close(two, 2 * one)


def test_the_sampling_form_draws_by_p_and_weighs_nothing():
    method = Cfol()
    net, batch, state = exact(method)
    state = {**state, "p": torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)}
    assert method.sampling(state) is state["p"]
    assert_equal_loss(method.loss(net, batch, state), cross_entropy(net(batch.x_adv), batch.y).mean(), net)


def test_the_reweighted_form_weighs_by_p_over_the_class_s_share():
    method = Cfol(form="reweighted")
    net, batch, state = exact(method)
    assert method.sampling(state) is None
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    entropy = cross_entropy(net(batch.x_adv), batch.y)
    assert_equal_loss(method.loss(net, batch, {**state, "p": p}), (3 * p[batch.y] * entropy).mean(), net)
    share = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    found = method.loss(net, batch, {**state, "p": p, "share": share})
    assert_equal_loss(found, ((p / share)[batch.y] * entropy).mean(), net)


def test_shares_are_counted_once_and_absent_classes_keep_theirs():
    method = Cfol(form="reweighted")
    state = method.init(NAMES)
    train = by_hand.records(train=by_hand.answers((1, 1, 0), (6, 2, 0)))
    counted = method.update(state, train, None, 1)
    np.testing.assert_allclose(counted["share"], [0.75, 0.25, 1 / 3])
    assert method.update(counted, train, None, 2) is counted
    assert Cfol().update(state, train, None, 1) is state


def test_the_same_growth_in_expectation_from_either_form():
    """η N err_k in N draws, whichever classes are drawn."""
    errors, draws = np.array([0.5, 0.2, 0.0]), 300000
    random, p = np.random.default_rng(0), np.array([0.6, 0.3, 0.1])
    for share in (p, np.full(3, 1 / 3)):
        label = random.choice(3, draws, p=share)
        wrong = random.random(draws) < errors[label]
        np.testing.assert_allclose(np.bincount(label, wrong / share[label], 3) / draws, errors, atol=0.01)


def test_half_of_p_is_uniform():
    method = Cfol(eta=1e6)
    net, batch, state = exact(method)
    wrong = torch.eye(3, dtype=torch.float64)[(batch.y + (batch.y == 0)) % 3]  # only class 0 fails
    state = method.after_step(net, batch, state, Loss(torch.zeros(len(LABELS)), wrong))
    torch.testing.assert_close(state["p"], torch.tensor([4 / 6, 1 / 6, 1 / 6], dtype=torch.float64))
