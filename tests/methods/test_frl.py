"""FRL: multipliers, weights and margins by hand, and the batch-normalised loss."""

from __future__ import annotations

import dataclasses

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_same_loss, terms

from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.methods.frl_rw import FrlRw, ascend
from classwise.methods.frl_rwrm import FrlRwrm
from classwise.methods.trades import Trades

SUPPORT = (10, 10, 20)
CLEAN, ROBUST = (9, 5, 18), (7, 1, 14)  # accuracies .9 .5 .9, .7 .1 .7; all 32/40 and 22/40


def valid(clean=CLEAN, robust=ROBUST, support=SUPPORT):
    return by_hand.records(clean=by_hand.answers(clean, support), frl=by_hand.answers(robust, support))


GAMMA0 = np.array([0.1, 0.5, 0.1]) - 0.2 - 0.1
GAMMA1 = np.array([0.2, 0.4, 0.2]) - 0.25 - 0.1


def test_multipliers_and_weights_by_hand():
    method = FrlRw()
    state = method.update(method.init(NAMES), None, valid(), 0)
    phi0, phi1 = np.maximum(0, 0.05 * GAMMA0), np.maximum(0, 0.1 * GAMMA1)
    np.testing.assert_allclose(state["phi0"], phi0, atol=1e-7)
    np.testing.assert_allclose(state["phi1"], phi1, atol=1e-7)
    np.testing.assert_allclose(state["weight"] / 3, 1 / 3 + phi0 - phi0.sum() / 3, rtol=1e-6)
    np.testing.assert_allclose(state["weight_kl"] / 3, 1 / 3 + phi1 - phi1.sum() / 3, rtol=1e-6)

    state = method.update(state, None, valid(), 1)
    phi0 = np.maximum(0, phi0 + 0.05 * GAMMA0)
    np.testing.assert_allclose(state["phi0"], phi0, atol=1e-7)


def test_multipliers_are_scaled_back_to_the_limit():
    method = FrlRw(rate=10.0, tau1=-0.15, tau2=-0.15)
    state = method.update(method.init(NAMES), None, valid(), 0)
    raw = np.maximum(0, 10 * (np.array([0.1, 0.5, 0.1]) - 0.2 + 0.15))
    np.testing.assert_allclose(state["phi0"], 0.5 * raw / raw.sum(), rtol=1e-6)
    assert float(state["weight"].min()) >= 0.5 - 1e-6
    assert float(state["weight"].mean()) == pytest.approx(1, abs=1e-6)


def test_below_the_limit_nothing_is_scaled():
    phi = torch.tensor([0.1, 0.2, 0.0])
    assert torch.equal(ascend(phi, torch.tensor([0.0, 0.0, -1.0]), 0.5), phi)


def test_the_rate_is_halved_from_the_40th_epoch_on():
    method = FrlRw()
    start = method.init(NAMES)
    before, after = (method.update(start, None, valid(), done)["phi0"] for done in (38, 39))
    assert torch.equal(before, 2 * after)


@pytest.mark.parametrize("method", [FrlRw(), FrlRwrm()])
def test_uniform_weights_are_trades_exactly(method):
    net = by_hand.model()
    batch = by_hand.batch(net)
    base = Trades(beta=1.5)
    state = method.init(NAMES)
    assert torch.equal(method.loss(net, batch, state).value, base.loss(net, batch, base.init(NAMES)).value)
    same = [by_hand.attacked(m, net, batch, m.init(NAMES)) for m in (method, base)]
    torch.testing.assert_close(*same, atol=1e-7, rtol=0)


def test_the_loss_is_normalised_within_the_batch():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = FrlRw()
    w0, w1 = torch.tensor([0.7, 1.6, 0.7]), torch.tensor([1.2, 0.6, 1.2])
    state = {**method.init(NAMES), "weight": w0, "weight_kl": w1}
    natural, boundary = terms(net, batch)
    a, b = w0[batch.y].double(), w1[batch.y].double()
    expected = (a * natural).sum() / a.sum() + 1.5 * (b * boundary).sum() / b.sum()
    assert_same_loss(method.loss(net, batch, state), expected, net)


def test_two_halves_of_a_batch_average_to_the_whole():
    """As two processes do that share a batch: each has its own half, and the mean of a number over both."""
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = FrlRw()
    weights = {"weight": torch.tensor([0.7, 1.6, 0.7]), "weight_kl": torch.tensor([1.2, 0.6, 1.2])}
    state = {**method.init(NAMES), **weights}
    whole = method.loss(net, batch, state).value.mean()
    means = [weights[name][batch.y].mean() for name in ("weight", "weight_kl")]
    halves = []
    for rows in (slice(0, 3), slice(3, 6)):
        answer = iter(means)
        part = dataclasses.replace(
            batch,
            **{name: getattr(batch, name)[rows] for name in ("x", "y", "key", "eps", "x_adv")},
            average=lambda value, answer=answer: next(answer),
        )
        halves.append(method.loss(net, part, state).value.mean())
    torch.testing.assert_close(sum(halves) / 2, whole)


def test_a_class_absent_from_batch_and_validation_is_no_matter():
    method = FrlRwrm()
    state = {**method.init(NAMES), "phi0": torch.tensor([0.0, 0.0, 0.2])}
    state = method.update(state, None, valid((9, 5, 0), (7, 1, 0), (10, 10, 0)), 0)
    assert all(torch.isfinite(value).all() for value in state.values())
    assert float(state["phi0"][2]) == pytest.approx(0.2)
    assert float(state["margin"][2]) == 1
    net = by_hand.model()
    assert torch.isfinite(method.loss(net, by_hand.batch(net, (0, 1, 1)), state).value).all()


def test_margins_by_hand():
    method = FrlRwrm(margin=(1.0, 1.0, 0.5))
    state = method.init(NAMES)
    phi2 = np.zeros(3)
    for done in range(3):
        state = method.update(state, None, valid(), done)
        phi2 += 0.2 * (np.array([0.2, 0.4, 0.2]) - 0.25 - 0.07)
    np.testing.assert_allclose(state["phi2"], phi2, atol=1e-6)
    assert phi2[0] < 0 < phi2[1]
    np.testing.assert_allclose(state["margin"], np.clip(np.exp(2 * phi2), 0.98, 3) * [1, 1, 0.5], rtol=1e-5)


@pytest.mark.parametrize(
    ("rule", "labels", "step"),
    [("batch_max", (0, 1, 0), 2.0), ("batch_max", (0, 2, 0), 1.0), ("own", (0, 1, 0), 1.0)],
)
def test_the_step_is_a_quarter_of_the_largest_radius_in_the_batch(rule, labels, step):
    """After one step from the image itself nearly: class 0, of margin 1, has moved by the step, ε at most."""
    net = by_hand.model()
    batch = by_hand.batch(net, labels, x=torch.full((3, 1, 1, 5), 0.5))
    method = FrlRwrm(steps=1, step_rule=rule)
    state = {**method.init(NAMES), "margin": torch.tensor([1.0, 2.0, 0.98])}
    moved = (by_hand.attacked(method, net, batch, state) - batch.x).abs().flatten(1).amax(1)
    assert float(moved[0]) == pytest.approx(step * 0.1 / 4, abs=0.005)


def test_it_validates_with_pgd_20_before_the_first_epoch():
    assert FrlRw.validates_first
    assert FrlRwrm().validation() == {"frl": Pgd(steps=20)}


@pytest.mark.parametrize("method", [FrlRw(), FrlRwrm()])
def test_nothing_held_out_names_the_remedy(method):
    with pytest.raises(UserError, match=r"frl_rw.*data\.validation"):
        method.update(method.init(NAMES), None, None, 0)


def test_bad_settings_are_errors():
    with pytest.raises(UserError, match="limit must be positive and below 1, got 1"):
        FrlRw(limit=1)
    with pytest.raises(UserError, match="halve"):
        FrlRw(halve=0)
