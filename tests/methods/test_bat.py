"""BAT's two attacks against loops over single images, and its loss, in double precision."""

from __future__ import annotations

import dataclasses

import by_hand
import pytest
import torch
from by_hand import NAMES
from torch import Tensor

from classwise.attacks.pgd import random_start
from classwise.core import rng
from classwise.core.threat import LINF
from classwise.methods.bat import Bat, from_uniform

NET = by_hand.model(4).double()  # which predicts every class
LABELS = (0, 1, 2) * 8
STEPS, STEP, EPS = 8, 0.04, 0.3
BATCH = by_hand.double(NET, LABELS, x_adv=None, eps=torch.full((len(LABELS),), EPS, dtype=torch.float64))


def start(key: Tensor) -> Tensor:
    """x + 0.001·N(0,1) of all images, clamped."""
    return random_start(BATCH.x, BATCH.eps, rng.keys(0, key), LINF, "gaussian").clamp(0, 1)


def step(x: Tensor, x_adv: Tensor) -> Tensor:
    """One step of TRADES' attack on one image."""
    p = torch.softmax(NET(x), 1).detach()
    x_adv = x_adv.detach().requires_grad_()
    q = torch.softmax(NET(x_adv), 1)
    gradient = torch.autograd.grad((p * (p.log() - q.log())).sum(), x_adv)[0]
    return (x_adv.detach() + STEP * gradient.sign()).clamp(x - EPS, x + EPS).clamp(0, 1)


def is_wrong(x: Tensor, y: int) -> bool:
    return int(NET(x).argmax()) != y


def last_clean(x: Tensor, x_adv: Tensor, y: int) -> Tensor:
    """As stop_to_lastclean.py, image by image."""
    before = x_adv
    for _ in range(STEPS):
        if is_wrong(x_adv, y):
            return before
        before, x_adv = x_adv, step(x, x_adv)
    return x_adv


def first_adversarial(x: Tensor, x_adv: Tensor, y: int, tau: int) -> Tensor:
    """As stop_to_firstadv.py, image by image."""
    control = tau
    for _ in range(STEPS):
        if is_wrong(x_adv, y):
            if control == 0:
                return x_adv
            control -= 1
        x_adv = step(x, x_adv)
    return x_adv


def every(function, key: Tensor, *more) -> Tensor:
    starts = start(key)
    return torch.cat([function(BATCH.x[[i]], starts[[i]], y, *more) for i, y in enumerate(LABELS)])


@pytest.mark.parametrize("tau", [0, 1, 3])
def test_the_first_adversarial_iterate_and_tau_more(tau):
    method = Bat(steps=STEPS, step=STEP, tau=tau)
    found = method.attack(NET, BATCH, method.init(NAMES))
    torch.testing.assert_close(found, every(first_adversarial, BATCH.key, tau), atol=1e-12, rtol=0)


def test_the_last_clean_iterate():
    method = Bat(steps=STEPS, step=STEP)
    found = method.last_clean(NET, BATCH, method.init(NAMES))
    torch.testing.assert_close(found, every(last_clean, rng.keys(1, BATCH.key)), atol=1e-12, rtol=0)


def test_there_are_images_of_every_kind():
    """Misclassified from the start, on the way, and never: otherwise the tests above show little."""
    for key in (BATCH.key, rng.keys(1, BATCH.key)):
        here, wrong = start(key), []
        for _ in range(STEPS):
            wrong.append([is_wrong(x[None], y) for x, y in zip(here, LABELS, strict=True)])
            here = torch.cat([step(BATCH.x[[i]], here[[i]]) for i in range(len(LABELS))])
        first = [list(column).index(True) if any(column) else None for column in zip(*wrong, strict=True)]
        assert {0, None} < {*first}
        assert max(at for at in first if at is not None) > 2


def test_the_loss_is_the_official_one():
    method = Bat(steps=STEPS, step=STEP, beta={"dog": 2.0}, uniform=0.5)
    state = method.init(NAMES)
    batch = dataclasses.replace(BATCH, x_adv=method.attack(NET, BATCH, state))
    beta, total = (6.0, 2.0, 6.0), torch.zeros((), dtype=torch.float64)
    inside = every(last_clean, rng.keys(1, BATCH.key))
    for i, y in enumerate(LABELS):
        lc, fa, p = (torch.softmax(NET(x[[i]]), 1)[0] for x in (inside, batch.x_adv, batch.x))
        uniform = sum((q * (q.log() - torch.log(torch.tensor(1 / 3, dtype=q.dtype)))).sum() for q in (lc, fa))
        total = total - lc[y].log() + beta[y] * (p * (p.log() - fa.log())).sum() + 0.5 * uniform
    by_hand.assert_equal_loss(method.loss(NET, batch, state), total / len(LABELS), NET)
    joint = method.loss(NET, dataclasses.replace(batch, joint=True), state)
    torch.testing.assert_close(joint.value, method.loss(NET, batch, state).value)


def test_the_records_are_those_of_the_adversarial_side():
    method = Bat(steps=2)
    state = method.init(NAMES)
    batch = dataclasses.replace(BATCH, x_adv=method.attack(NET, BATCH, state))
    torch.testing.assert_close(method.loss(NET, batch, state).logits, NET(batch.x_adv))


def test_distance_from_uniform():
    assert torch.allclose(from_uniform(torch.zeros(2, 4)), torch.zeros(2), atol=1e-6)
    assert torch.allclose(from_uniform(torch.tensor([[100.0, 0, 0, 0]])), torch.tensor(4.0).log())


def test_batch_norm_sees_the_three_images_in_the_official_order():
    net = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *by_hand.model()).double().train()
    method = Bat(steps=2)
    state, batch = method.init(NAMES), dataclasses.replace(BATCH, x_adv=BATCH.x + 0.05)
    net[0].reset_running_stats()
    method.loss(net, batch, state)
    inside = method.last_clean(net, batch, state)
    order = [x.mean() for x in (inside, batch.x_adv, batch.x)]
    assert torch.allclose(net[0].running_mean, 0.1 * (0.81 * order[0] + 0.9 * order[1] + order[2]))
