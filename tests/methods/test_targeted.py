"""FAIR-TAT and TRIX: targets, radii and mixed attacks against the official rules written out, in double precision."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import NAMES
from torch import Tensor

from classwise.attacks.pgd import draw_target, random_start
from classwise.core import rng
from classwise.core.threat import LINF
from classwise.methods.dafa import Dafa
from classwise.methods.fair_tat import FairTat
from classwise.methods.trix import Trix, vulnerability

NET = by_hand.model(4).double()  # which predicts every class
LABELS = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0)
BATCH = by_hand.double(NET, LABELS, x_adv=None)


def said(labels: list[int], predictions: list[int]):
    """Training records with these predictions."""
    return by_hand.records(train=(labels, 0.7 * np.eye(3)[predictions] + 0.1))


# ---- FAIR-TAT


def test_fair_tat_targets_and_radii_over_three_epochs():
    method = FairTat(margin={"emu": 0.8})
    state = method.init(NAMES)
    np.testing.assert_allclose(state["target"], 1 / 3)
    own = np.array([1, 1, 0.8])
    labels = [0, 0, 0, 0, 1, 1, 2, 2]
    for epoch, predictions in enumerate(
        [[0, 0, 0, 1, 0, 0, 2, 0], [0, 1, 1, 2, 1, 2, 2, 2], [0, 0, 0, 0, 1, 1, 2, 2]], start=1
    ):
        before, state = state, method.update(state, said(labels, predictions), None, epoch)
        hits, errors = np.zeros(3), np.zeros(3)
        for y, k in zip(labels, predictions, strict=True):
            hits[y] += y == k
            errors[k] += y != k
        np.testing.assert_allclose(state["margin"], own * (0.5 + hits / [4, 2, 2]), rtol=1e-6)
        if errors.sum():
            s = np.exp(2 * errors / errors.sum())
            np.testing.assert_allclose(state["target"], s / s.sum(), rtol=1e-6)
        else:
            assert torch.equal(state["target"], before["target"])


def test_fair_tat_settings():
    records = said([0, 0, 1, 2], [1, 1, 2, 2])
    start = FairTat().init(NAMES)
    assert FairTat().update(start, None, None, 0) is start
    by_share = FairTat(targets="share", radii=False).update(start, records, None, 1)
    np.testing.assert_allclose(by_share["target"], [0, 2 / 3, 1 / 3], rtol=1e-6)
    assert torch.equal(by_share["margin"], start["margin"])
    uniform = FairTat(targets="uniform", offset=0.25).update(start, records, None, 1)
    assert torch.equal(uniform["target"], start["target"])
    np.testing.assert_allclose(uniform["margin"], [0.25, 0.25, 1.25])


def test_fair_tat_a_class_without_examples_keeps_its_radius():
    method = FairTat()
    state = {**method.init(NAMES), "margin": torch.tensor([0.7, 0.8, 0.9])}
    np.testing.assert_allclose(method.update(state, said([0, 0], [0, 1]), None, 1)["margin"], [1.0, 0.8, 0.9])


@pytest.mark.parametrize(("step", "size"), [(None, 0.025), (0.04, 0.04)])
def test_fair_tat_descends_to_the_drawn_target(step, size):
    method = FairTat(steps=5, step=step)
    state = {**method.init(NAMES), "margin": torch.tensor([1.5, 1.0, 0.6]), "target": torch.tensor([0.2, 0.5, 0.3])}
    target = draw_target(BATCH.key, BATCH.y, state["target"])
    assert (target != BATCH.y).all()
    eps = (state["margin"][BATCH.y] * BATCH.eps).reshape(-1, 1, 1, 1)
    x_adv = random_start(BATCH.x, eps.flatten(), rng.keys(0, BATCH.key), LINF, "uniform").clamp(0, 1)
    for _ in range(5):
        x_adv = x_adv.detach().requires_grad_()
        gradient = torch.autograd.grad(F.cross_entropy(NET(x_adv), target), x_adv)[0]
        x_adv = (x_adv.detach() - size * gradient.sign()).clamp(BATCH.x - eps, BATCH.x + eps).clamp(0, 1)
    torch.testing.assert_close(method.attack(NET, BATCH, state), x_adv, atol=1e-7, rtol=0)


def test_fair_tat_trains_on_the_true_label():
    method, batch = FairTat(weight={"dog": 2.0}), by_hand.double(NET)
    weight = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)[batch.y]
    p = torch.softmax(NET(batch.x_adv), 1)
    expected = -(weight * p[range(len(p)), batch.y].log()).mean()
    by_hand.assert_equal_loss(method.loss(NET, batch, method.init(NAMES)), expected, NET)


def test_fair_tat_with_three_passes_shows_batch_norm_the_clean_batch_twice():
    net = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *by_hand.model()).double().train()
    batch = by_hand.double(NET)
    clean, moved = batch.x.mean(), batch.adversarial.mean()
    for passes, expected in ((1, 0.1 * moved), (3, 0.1 * (0.81 * moved + 0.9 * clean + clean))):
        method = FairTat(passes=passes)
        state = method.init(NAMES)
        net[0].reset_running_stats()
        loss = method.loss(net, batch, state)
        assert method.after_step(net, batch, state, loss) is state
        assert torch.allclose(net[0].running_mean, expected)


# ---- TRIX


def official_weights(p: np.ndarray, labels: tuple[int, ...]) -> np.ndarray:
    """calculate_class_weights_from_clean: DAFA's double loop, on the batch."""
    s = np.array([p[np.array(labels) == k].mean(0) if k in labels else np.zeros(3) for k in range(3)])
    w = np.ones(3)
    for i in range(3):
        for j in range(3):
            if i != j and s[i, i] < s[j, j]:
                w[i] += s[i, j] * s[j, j]
            elif i != j:
                w[i] -= s[j, i] * s[i, i]
    return w


def strong(labels: tuple[int, ...], x: Tensor) -> np.ndarray:
    w = official_weights(torch.softmax(NET(x), 1).detach().numpy(), labels)
    return w[list(labels)] < w[list(labels)].mean()


@pytest.mark.parametrize("labels", [LABELS, (0, 0, 2, 2, 2)])
def test_trix_strong_classes_are_those_of_the_official_rule(labels):
    method, batch = Trix(), by_hand.double(NET, labels, x_adv=None)
    found = method.strong(NET, batch, method.init(NAMES))
    np.testing.assert_array_equal(found, strong(labels, batch.x))
    assert {*found.tolist()} == {True, False}


def test_trix_weights_of_a_batch_move_as_dafas_do():
    s = np.random.default_rng(0).dirichlet(np.ones(3), 3)
    p = np.repeat(s, 2, axis=0)
    expected = official_weights(p, (0, 0, 1, 1, 2, 2)) - 1
    np.testing.assert_allclose(vulnerability(torch.from_numpy(s)), expected, atol=1e-12)


@pytest.mark.parametrize(("step", "share"), [(None, 0.25), (0.03, 0.3)])
def test_trix_attack_is_that_of_a_plain_loop(step, share):
    method = Trix(steps=4, step=step)
    state = {**method.init(NAMES), "margin": torch.tensor([1.2, 0.7, 1.0])}
    easy = torch.from_numpy(strong(LABELS, BATCH.x)).reshape(-1, 1, 1, 1)
    target = draw_target(BATCH.key, BATCH.y, torch.ones(3))
    w = state["margin"][BATCH.y].reshape(-1, 1, 1, 1).double()
    x, p = BATCH.x, torch.softmax(NET(BATCH.x), 1).detach()
    x_adv = random_start(x, BATCH.eps, rng.keys(0, BATCH.key), LINF, "gaussian")
    for _ in range(4):
        x_adv = x_adv.detach().requires_grad_()
        z = NET(x_adv)
        towards = torch.autograd.grad(F.cross_entropy(z, target, reduction="sum"), x_adv, retain_graph=True)[0]
        away = torch.autograd.grad(F.kl_div(torch.log_softmax(z, 1), p, reduction="sum"), x_adv)[0]
        moved = x_adv.detach() + w * share * 0.1 * torch.where(easy, -towards.sign(), away.sign())
        x_adv = moved.clamp(x - w * 0.1, x + w * 0.1).clamp(0, 1)
    torch.testing.assert_close(method.attack(NET, BATCH, state), x_adv, atol=1e-7, rtol=0)


def test_trix_loss_and_weights_are_dafas():
    batch, method, base = by_hand.double(NET), Trix(warmup=1), Dafa(warmup=1)
    records = by_hand.records(train=by_hand.answers((8, 2, 10), (10, 10, 20)))
    states = [m.update(m.init(NAMES), records, None, 1) for m in (method, base)]
    assert states[0]["weight"].std() > 0.01
    for name, value in states[1].items():
        assert torch.equal(states[0][name], value)
    assert torch.equal(method.loss(NET, batch, states[0]).value, base.loss(NET, batch, states[1]).value)


def test_trix_processes_that_share_a_batch_agree_on_its_strong_classes():
    method = Trix()
    state, batch = method.init(NAMES), by_hand.double(NET, (0, 0, 0, 0, 1, 1, 1, 2, 2))
    for at in (4, 7):  # one of the two has images of a single class, in which none would be strong
        parts = by_hand.in_two_processes(batch, at, lambda own: method.strong(NET, own, state))
        assert torch.equal(torch.cat(parts), method.strong(NET, batch, state))
