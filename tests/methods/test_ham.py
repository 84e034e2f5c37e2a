"""HAM's attack and loss against the official loop written out, in double precision."""

from __future__ import annotations

import dataclasses

import by_hand
import pytest
import torch
import torch.nn.functional as F
from by_hand import NAMES
from torch import Tensor

from classwise.attacks.pgd import random_start
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import LINF
from classwise.methods.ham import Ham
from classwise.methods.madry import Madry

NET = by_hand.model(4).double()  # which predicts every class
LABELS = (0, 1, 2) * 6
EPS = 0.3
BATCH = by_hand.double(
    NET, LABELS, x_adv=None, eps=torch.full((len(LABELS),), EPS, dtype=torch.float64), epoch=2.0, columns={}
)
METHOD = Ham(steps=6, step=0.06, check=2, begin=2)


def official() -> tuple[Tensor, Tensor]:
    """GA_PGD_early2: the points of all images, and which are kept."""
    x, y = BATCH.x, BATCH.y
    x_adv = random_start(x, BATCH.eps, rng.keys(0, BATCH.key), LINF, "uniform").clamp(0, 1)
    kept = torch.ones(len(y), dtype=torch.bool)
    for number in range(1, 7):
        here = x_adv[kept].detach().requires_grad_()
        gradient = torch.autograd.grad(F.cross_entropy(NET(here), y[kept]), here)[0]
        moved = (here.detach() + 0.06 * gradient.sign()).clamp(x[kept] - EPS, x[kept] + EPS).clamp(0, 1)
        x_adv[kept] = moved
        if number == 2:
            kept = NET(x_adv).argmax(1) != y
    return x_adv, kept


def attacked(method: Ham = METHOD, **changes: object):
    batch = dataclasses.replace(BATCH, columns={}, **changes)
    return dataclasses.replace(batch, x_adv=method.attack(NET, batch, method.init(NAMES)))


def test_the_attack_goes_on_where_an_image_has_fallen():
    expected, kept = official()
    assert 0 < kept.sum() < len(kept)
    batch = attacked()
    torch.testing.assert_close(batch.x_adv, expected, atol=1e-12, rtol=0)
    assert torch.equal(batch.columns["kept"] > 0, kept)


def test_the_loss_is_the_mean_over_the_kept():
    x_adv, kept = official()
    p = torch.softmax(NET(x_adv), 1)
    expected = -sum(p[i, y].log() for i, y in enumerate(LABELS) if kept[i]) / kept.sum()
    found = METHOD.loss(NET, attacked(), METHOD.init(NAMES))
    by_hand.assert_equal_loss(found, expected, NET)
    assert (found.value[~kept] == 0).all()
    torch.testing.assert_close(found.logits, NET(x_adv))


def test_only_the_kept_move_batch_norm():
    net = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *by_hand.model()).double().train()
    batch, (x_adv, kept) = attacked(), official()
    net[0].reset_running_stats()
    METHOD.loss(net, batch, METHOD.init(NAMES))
    assert torch.allclose(net[0].running_mean, 0.1 * x_adv[kept].mean())


def test_it_is_pgd_training_before_it_begins():
    batch, base = attacked(epoch=1.9), Madry(steps=6, step=0.06)
    assert torch.equal(batch.x_adv, base.attack(NET, dataclasses.replace(BATCH), base.init(NAMES)))
    assert not batch.columns
    values = [m.loss(NET, batch, m.init(NAMES)).value for m in (METHOD, base)]
    assert torch.equal(*values)
    assert METHOD.idle_epochs() == 2


@pytest.mark.parametrize("kept", [[], [4]])
def test_batches_of_which_hardly_anything_is_kept(kept):
    batch = attacked()
    batch.columns["kept"] = torch.zeros(len(LABELS)).index_fill(0, torch.tensor(kept, dtype=torch.int64), 1)
    found = METHOD.loss(NET, batch, METHOD.init(NAMES)).value
    expected = torch.zeros_like(found)
    for i in kept:
        expected[i] = len(LABELS) * F.cross_entropy(NET(batch.x_adv), batch.y, reduction="none")[i]
    torch.testing.assert_close(found, expected)
    assert torch.isfinite(by_hand.gradients(NET, found.mean())).all()


def test_images_are_dropped_after_the_last_step_too():
    method = Ham(steps=2, step=0.06, check=2, begin=0)
    _, kept = official()
    assert torch.equal(attacked(method).columns["kept"] > 0, kept)
    with pytest.raises(UserError, match="check must be at most steps, 2, got 3"):
        Ham(steps=2)


def test_processes_that_share_a_batch_divide_by_all_that_are_kept():
    batch, state = attacked(), METHOD.init(NAMES)

    def part(own):
        first = len(own.y) == 5
        kept = batch.columns["kept"][:5] if first else batch.columns["kept"][5:]
        return METHOD.loss(NET, dataclasses.replace(own, columns={"kept": kept}), state).value.detach()

    parts = by_hand.in_two_processes(batch, 5, part)
    torch.testing.assert_close(torch.cat(parts), METHOD.loss(NET, batch, state).value.detach())
