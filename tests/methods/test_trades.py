"""Standard training, PGD-AT and TRADES against their formulas written out, and TRADES' attack against a plain loop."""

from __future__ import annotations

import dataclasses

import by_hand
import pytest
import torch
import torch.nn.functional as F

from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import random_start
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import LINF
from classwise.methods.madry import Madry
from classwise.methods.standard import Standard
from classwise.methods.trades import Trades

NET = by_hand.model()
BATCH = by_hand.batch(NET)


def test_standard_is_cross_entropy_of_the_clean_images() -> None:
    method = Standard()
    natural, _ = by_hand.terms(NET, BATCH)
    by_hand.assert_same_loss(method.loss(NET, BATCH, method.init(by_hand.NAMES)), natural.mean(), NET)


def test_madry_is_cross_entropy_of_the_adversarial_images() -> None:
    method = Madry()
    q = torch.softmax(NET(BATCH.adversarial).double(), 1)
    expected = -q[range(len(q)), BATCH.y].log()
    by_hand.assert_same_loss(method.loss(NET, BATCH, method.init(by_hand.NAMES)), expected.mean(), NET)


@pytest.mark.parametrize("beta", [1.0, 6.0])
def test_trades_is_the_published_formula(beta: float) -> None:
    method = Trades(beta=beta)
    natural, divergence = by_hand.terms(NET, BATCH)
    by_hand.assert_same_loss(
        method.loss(NET, BATCH, method.init(by_hand.NAMES)), (natural + beta * divergence).mean(), NET
    )


def test_trades_with_a_beta_for_each_class() -> None:
    method = Trades(beta={"dog": 0.5})
    natural, divergence = by_hand.terms(NET, BATCH)
    beta = torch.tensor([6.0, 0.5, 6.0])[BATCH.y]
    by_hand.assert_same_loss(
        method.loss(NET, BATCH, method.init(by_hand.NAMES)), (natural + beta * divergence).mean(), NET
    )


def test_a_temperature_divides_the_logits_of_its_class() -> None:
    method = Madry(temperature={"emu": 2.0})
    temperature = torch.tensor([1.0, 1.0, 2.0])[BATCH.y][:, None]
    expected = F.cross_entropy(NET(BATCH.adversarial) / temperature, BATCH.y, reduction="none")
    assert torch.allclose(method.loss(NET, BATCH, method.init(by_hand.NAMES)).value, expected, atol=1e-6)


def test_label_smoothing_mixes_in_the_uniform_distribution() -> None:
    method, batch = Madry(), dataclasses.replace(BATCH, smoothing=0.3)
    log_p = torch.log_softmax(NET(batch.adversarial), 1)
    expected = -0.7 * log_p[range(len(log_p)), batch.y] - 0.3 * log_p.mean(1)
    assert torch.allclose(method.loss(NET, batch, method.init(by_hand.NAMES)).value, expected, atol=1e-6)


def test_the_attack_is_that_of_a_plain_loop() -> None:
    method = Trades(steps=4, step=0.03)
    batch = dataclasses.replace(BATCH, x_adv=None)
    x, eps, p = batch.x, 0.1, torch.softmax(NET(batch.x), 1).detach()
    x_adv = random_start(x, batch.eps, rng.keys(0, batch.key), LINF, "gaussian")
    for _ in range(4):
        x_adv = x_adv.detach().requires_grad_()
        gradient = torch.autograd.grad(F.kl_div(torch.log_softmax(NET(x_adv), 1), p, reduction="sum"), x_adv)[0]
        x_adv = torch.min(torch.max(x_adv.detach() + 0.03 * gradient.sign(), x - eps), x + eps).clamp(0, 1)
    assert torch.allclose(method.attack(NET, batch, method.init(by_hand.NAMES)), x_adv, atol=1e-6)


def test_a_joint_pass_gives_the_same_where_nothing_looks_at_the_whole_batch() -> None:
    method = Trades()
    state = method.init(by_hand.NAMES)
    joint = method.loss(NET, dataclasses.replace(BATCH, joint=True), state)
    assert torch.allclose(joint.value, method.loss(NET, BATCH, state).value, atol=1e-6)


def test_three_passes_move_the_statistics_as_the_official_code_does() -> None:
    net = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *by_hand.model())
    state = Trades().init(by_hand.NAMES)
    means = []
    for passes in (2, 3):
        net[0].reset_running_stats()
        Trades(passes=passes).loss(net.train(), BATCH, state)  # type: ignore[arg-type]
        means.append(net[0].running_mean.clone())
    clean, moved = BATCH.x.mean(), BATCH.adversarial.mean()
    assert torch.allclose(means[0], 0.1 * (0.9 * clean + moved))
    assert torch.allclose(means[1], 0.1 * (0.81 * clean + 0.9 * moved + clean))


@pytest.mark.parametrize(
    ("settings", "match"), [({"target": 1}, "takes no target"), ({"start": "none"}, "random start")]
)
def test_kl_pgd_refuses_what_it_cannot_do(settings: dict[str, object], match: str) -> None:
    with pytest.raises(UserError, match=match):
        KlPgd(**settings)  # type: ignore[arg-type]
