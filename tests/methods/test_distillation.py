"""ARD, IAD, RSLAD, MTARD, Fair-ARD and ABSLD in float64 against the official rules, written out by example."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import by_hand
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import NAMES
from torch import Tensor, nn

from classwise.attacks.pgd import random_start
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.core.threat import LINF
from classwise.methods import Batch, Loss, Method, State
from classwise.methods.absld import Absld
from classwise.methods.ard import Ard
from classwise.methods.fair_ard import FairArd, class_weights
from classwise.methods.iad import Iad
from classwise.methods.mtard import Mtard
from classwise.methods.rslad import Rslad

NET, ROBUST, CLEAN = (by_hand.model(seed).double() for seed in (0, 1, 2))
LABELS = (0, 1, 2, 0, 1, 0)


def batch(seed: int = 0, **rest: Any) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    given = by_hand.batch(NET, LABELS, teacher=ROBUST, teacher_clean=CLEAN)
    x, noise = (torch.rand(given.x.shape, generator=generator, dtype=torch.float64) for _ in range(2))
    made = dataclasses.replace(
        given,
        x=x,
        x_adv=(x + 0.2 * (noise - 0.5)).clamp(0, 1),
        eps=torch.full((len(x),), 0.1, dtype=torch.float64),
        columns={},
    )
    return dataclasses.replace(made, **rest)


def start_of(method: Method) -> State:
    return {name: value.double() for name, value in method.init(NAMES).items()}


def agree(found: Loss, expected: Tensor) -> None:
    """The batch's mean loss and its gradient."""
    mean = found.value.mean()
    assert math.isclose(mean.item(), expected.item(), rel_tol=0, abs_tol=1e-9)
    parameters = list(NET.parameters())
    for one, other in zip(*(torch.autograd.grad(loss, parameters) for loss in (mean, expected)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


def answers(net: nn.Module, x: Tensor, t: float = 1.0) -> Tensor:
    return torch.exp(net(x) / t) / torch.exp(net(x) / t).sum(1, keepdim=True)


def mean_over(rows: list[Any]) -> Any:
    return sum(rows) / len(rows)


def soft(b: Tensor, q: Tensor) -> Tensor:
    """RSLAD's element −a·b + log(b + 1e-5)·b, averaged over the classes, of one example."""
    return sum(-q[c].log() * b[c] + torch.log(b[c] + 1e-5) * b[c] for c in range(len(b))) / len(b)  # type: ignore[return-value]


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return sum(p[c] * (p[c].log() - q[c].log()) for c in range(len(p)))  # type: ignore[return-value]


def taught(net: nn.Module, x: Tensor, t: float = 1.0) -> Tensor:
    return answers(net, x, t).detach()


# ---- ARD and IAD -----------------------------------------------------------------------------------------------------


def ard(given: Batch, t: float, alpha: float, weight: Tensor) -> Tensor:
    b, q, clean = taught(ROBUST, given.x, t), answers(NET, given.adversarial, t), answers(NET, given.x)
    rows = []
    for i, y in enumerate(LABELS):
        kl = sum(b[i, c] * (b[i, c].log() - q[i, c].log()) for c in range(3)) / 3
        rows.append(weight[y] * (alpha * t * t * kl - (1 - alpha) * clean[i, y].log()))
    found: Tensor = mean_over(rows)
    return found


@pytest.mark.parametrize(("t", "alpha"), [(30.0, 1.0), (4.0, 0.3)])
def test_ard(t: float, alpha: float) -> None:
    method = Ard(distillation_temperature=t, alpha=alpha, weight={"dog": 3.0})
    agree(method.loss(NET, batch(), start_of(method)), ard(batch(), t, alpha, torch.tensor([1.0, 3.0, 1.0])))


def test_ard_has_the_official_settings() -> None:
    method = Ard()
    assert (method.distillation_temperature, method.alpha, method.steps, method.mode) == (30, 1, 10, "train")
    assert (method.start, method.inner().clamp) == ("uniform", False)  # type: ignore[attr-defined]


def pgd(given: Batch, start: str, steps: int, loss: Any) -> tuple[Tensor, list[int]]:
    """PGD in a loop, with steps of 0.03 from a start that is not clamped; and how often each iterate was right."""
    eps, x = 0.1, given.x
    x_adv = random_start(x, given.eps, rng.keys(0, given.key), LINF, start)  # type: ignore[arg-type]
    kappa = [0] * len(x)
    for _ in range(steps):
        x_adv = x_adv.detach().requires_grad_()
        z = NET(x_adv)
        for i, y in enumerate(LABELS):
            kappa[i] += int(z[i].argmax() == y)
        gradient = torch.autograd.grad(loss(z), x_adv)[0]
        x_adv = torch.min(torch.max(x_adv.detach() + 0.03 * gradient.sign(), x - eps), x + eps).clamp(0, 1)
    return x_adv, kappa


def label_loss(z: Tensor) -> Tensor:
    return F.cross_entropy(z, torch.tensor(LABELS), reduction="sum")


def soft_loss(logits: Tensor) -> Any:
    return lambda z: F.kl_div(torch.log_softmax(z, 1), torch.softmax(logits.detach(), 1), reduction="sum")


@pytest.mark.parametrize(
    ("method", "start", "loss"),
    [
        (Ard(steps=4, step=0.03), "uniform", label_loss),
        (Iad(steps=4, step=0.03), "uniform", label_loss),
        (Rslad(steps=4, step=0.03), "gaussian", soft_loss(ROBUST(batch().x))),
        (Mtard(steps=4, step=0.03), "gaussian", label_loss),
    ],
)
def test_attacks_are_those_of_a_plain_loop(method: Method, start: str, loss: Any) -> None:
    given = batch(x_adv=None)
    expected, kappa = pgd(given, start, 4, loss)
    torch.testing.assert_close(method.attack(NET, given, start_of(method)), expected, atol=1e-12, rtol=0)
    assert not given.columns
    fair = FairArd(base=type(method).__name__.lower(), steps=4, step=0.03)  # type: ignore[arg-type]
    torch.testing.assert_close(fair.attack(NET, given, start_of(fair)), expected, atol=1e-12, rtol=0)
    assert given.columns["kappa"].tolist() == kappa
    assert 0 < sum(kappa) < 4 * len(kappa)


def iad(given: Batch, power: float, second: bool, weight: Tensor, alpha: float = 1.0) -> Tensor:
    b, q, own = taught(ROBUST, given.x), answers(NET, given.adversarial), answers(NET, given.x)
    guide = taught(ROBUST, given.adversarial)
    rows = []
    for i, y in enumerate(LABELS):
        value = alpha * divergence(b[i], q[i]) - (1 - alpha) * own[i, y].log()
        if second:
            value = value + alpha * (1 - guide[i, y] ** power) * divergence(own[i], q[i])
        rows.append(weight[y] * value)
    found: Tensor = mean_over(rows)
    return found


@pytest.mark.parametrize("alpha", [1.0, 0.6])
@pytest.mark.parametrize(("epoch", "second"), [(0.0, False), (59.99, False), (60.0, True), (199.5, True)])
def test_iad(epoch: float, second: bool, alpha: float) -> None:
    method = Iad(weight={"emu": 2.0}, alpha=alpha)
    given = batch(epoch=epoch)
    expected = iad(given, 0.1, second, torch.tensor([1.0, 1.0, 2.0]), alpha)
    agree(method.loss(NET, given, start_of(method)), expected)
    assert method.idle_epochs() == 60


# ---- RSLAD and ABSLD -------------------------------------------------------------------------------------------------


def rslad(given: Batch, t_adv: Tensor, t_nat: Tensor, weight: Tensor | None = None) -> Tensor:
    z = ROBUST(given.x).detach()
    q, own = answers(NET, given.adversarial), answers(NET, given.x)
    rows = []
    for i, y in enumerate(LABELS):
        b_adv, b_nat = torch.softmax(z[i] / t_adv[y], 0), torch.softmax(z[i] / t_nat[y], 0)
        value = 5 / 6 * soft(b_adv, q[i]) + 1 / 6 * soft(b_nat, own[i])
        rows.append(value if weight is None else weight[y] * value)
    found: Tensor = mean_over(rows)
    return found


ONES = torch.ones(3, dtype=torch.float64)


def test_rslad() -> None:
    method = Rslad(weight={"cat": 0.5})
    given = batch()
    found = method.loss(NET, given, start_of(method))
    agree(found, rslad(given, ONES, ONES, torch.tensor([0.5, 1.0, 1.0])))
    own = -answers(NET, given.x)[range(6), list(LABELS)].log()
    torch.testing.assert_close(found.columns["clean_loss"], own)


def test_absld_labels_by_protocol() -> None:
    t = {"t_adv": torch.tensor([0.5, 1.3, 5.0]).double(), "t_nat": torch.tensor([2.0, 0.6, 1.1]).double()}
    for protocol, adv, nat in (
        ("paper", t["t_adv"], t["t_nat"]),
        ("code", t["t_adv"] * t["t_nat"], t["t_adv"] * t["t_nat"]),
    ):
        method = Absld(steps=3, step=0.03, protocol=protocol)  # type: ignore[arg-type]
        state = {**start_of(method), **t}
        agree(method.loss(NET, batch(), state), rslad(batch(), adv, nat))
        given = batch(x_adv=None)
        tempered = ROBUST(given.x) / adv[given.y][:, None]
        expected, _ = pgd(given, "gaussian", 3, soft_loss(tempered))
        torch.testing.assert_close(method.attack(NET, given, state), expected, atol=1e-12, rtol=0)
    agree(Absld().loss(NET, batch(), start_of(Absld())), rslad(batch(), ONES, ONES))


def records(label: Any, **columns: Any) -> Records:
    made = by_hand.records(train=(label, np.full((len(label), 3), 1 / 3)))
    return dataclasses.replace(made, frame=made.frame.assign(**columns))


def moved(t: list[float], losses: list[float], rate: float) -> list[float]:
    """One update of the official code, from the sums of a class's losses."""
    gap = [s - sum(losses) / len(losses) for s in losses]
    largest = max(abs(g) for g in gap)
    return [min(max(a - rate * g / largest, 0.5), 5.0) for a, g in zip(t, gap, strict=True)]


def test_absld_temperatures_over_many_epochs() -> None:
    method, random = Absld(drops=(6, 9)), np.random.default_rng(0)
    state, rate = start_of(method), 0.1
    t_adv, t_nat = [1.0] * 3, [1.0] * 3
    label = np.repeat([0, 1, 2], 4)
    for epoch in range(1, 12):
        adv, nat = random.random(12) + 2 * (label == 1), random.random(12) - 0.5 * (label == 2)
        if epoch in (6, 9):
            rate *= 0.1
        t_adv = moved(t_adv, [float(adv[label == k].sum()) for k in range(3)], rate)
        t_nat = moved(t_nat, [float(nat[label == k].sum()) for k in range(3)], rate)
        state = method.update(state, records(label, loss=adv, clean_loss=nat), None, epoch)
        np.testing.assert_allclose(state["t_adv"], t_adv, atol=1e-9)
        np.testing.assert_allclose(state["t_nat"], t_nat, atol=1e-9)
    assert state["t_adv"][1] == 0.5  # the hard class at the floor
    assert state["t_adv"][0] > 1


def test_absld_with_unequal_absent_and_equal_classes() -> None:
    method = Absld()
    start = start_of(method)
    uneven = records([0, 0, 0, 1], loss=[1.0, 1.0, 1.0, 2.0], clean_loss=[1.0, 1.0, 1.0, 1.0])
    state = method.update(start, uneven, None, 1)
    np.testing.assert_allclose(state["t_adv"], [1.1, 0.9, 1.0])  # by means, and emu keeps its own
    np.testing.assert_allclose(state["t_nat"], [1.0, 1.0, 1.0])  # no gap
    assert method.update(start, None, None, 0) is start
    with pytest.raises(UserError, match=r"least ≤ 1 ≤ most, got 2 and 5"):
        Absld(least=2.0)


# ---- MTARD -----------------------------------------------------------------------------------------------------------


def parts(given: Batch, weight: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    b, q, own = taught(ROBUST, given.adversarial), answers(NET, given.adversarial), answers(NET, given.x)
    adv = [weight[y] * soft(b[i], q[i]) for i, y in enumerate(LABELS)]
    nat = [weight[y] * soft(clean[i], own[i]) for i, y in enumerate(LABELS)]
    return mean_over(adv), mean_over(nat)


@pytest.mark.parametrize("protocol", ["mtard", "paper", "code"])
def test_mtard_balances_its_teachers_batch_by_batch(protocol: Any) -> None:
    """Weights change the losses that are balanced; Fair-MTARD's code knows one teacher."""
    weight = torch.tensor([1.0, 2.0, 0.7]).double()
    method: Method = Mtard() if protocol == "mtard" else FairArd(base="mtard", protocol=protocol)
    state = {**start_of(method), "weight": weight}
    v, first = 0.5, None
    for number, epoch in enumerate([0.0, 0.5, 1.0, 214.99, 215.0, 260.0, 285.0, 299.0]):
        given = batch(number, epoch=epoch)
        label = taught(ROBUST, given.adversarial) if protocol == "code" else taught(CLEAN, given.x)
        adv, nat = parts(given, weight, label)
        first = first or (adv.item(), nat.item())
        rate = 0.025 * {215.0: 0.1, 260.0: 0.01}.get(epoch, 0.001 if epoch >= 285 else 1.0)
        r_adv, r_nat = adv.item() / first[0], nat.item() / first[1]
        v = v - rate * (v - r_nat / (r_adv + r_nat))
        loss = method.loss(NET, given, state)
        agree(loss, (1 - v) * adv + v * nat)
        state = method.after_step(NET, given, state, loss)
        assert math.isclose(float(state["clean_share"]), v, abs_tol=1e-10)
    assert abs(v - 0.5) > 1e-4
    assert method.needs_teacher() == (("teacher",) if protocol == "code" else ("teacher", "teacher_clean"))


# ---- Fair-ARD --------------------------------------------------------------------------------------------------------


def assigned(kappa: list[float]) -> list[float]:
    """The official rule, for classes of the same size."""
    raw = [(1 / (k + 1e-5)) ** 2 for k in kappa]
    return [min(max(r * len(kappa) / sum(raw), 5 / 6), 5 / 2) for r in raw]


def test_fair_ard_weights_over_many_epochs() -> None:
    method, random = FairArd(weight={"emu": 2.0}), np.random.default_rng(1)
    state = start_of(method)
    assert state["weight"].tolist() == [1, 1, 2]
    label = np.repeat([0, 1, 2], 5)
    for epoch in range(1, 5):
        kappa = random.integers(0, 11, 15) // (1 + label)
        means = [float(kappa[label == k].mean()) for k in range(3)]
        state = method.update(state, records(label, kappa=kappa), None, epoch)
        expected = np.array(assigned(means)) * [1, 1, 2]
        np.testing.assert_allclose(state["weight"], expected, rtol=1e-9)
    assert method.update(state, None, None, 0) is state


def test_fair_ard_weights_are_clipped_and_not_scaled_again() -> None:
    found = class_weights(np.array([9.0, 8.0, 7.0, 1.0, 5.0]), 2.0, 5 / 6, 5 / 2)
    np.testing.assert_allclose(found, assigned([9, 8, 7, 1, 5]))
    np.testing.assert_allclose(found, [5 / 6, 5 / 6, 5 / 6, 5 / 2, 5 / 6])
    assert found.sum() > 5
    np.testing.assert_allclose(class_weights(np.array([2.0, np.nan, 2.0]), 2.0, 5 / 6, 5 / 2), 1)
    np.testing.assert_allclose(class_weights(np.zeros(3), 2.0, 5 / 6, 5 / 2), 1)
    with pytest.raises(UserError, match=r"least must not exceed most, got 3 and 2\.5"):
        FairArd(least=3.0)


def test_fair_ard_weighs_the_loss_of_its_base() -> None:
    weight = torch.tensor([0.9, 2.5, 5 / 6]).double()
    given = batch(epoch=70.0)
    expected = {
        "ard": ard(given, 30.0, 1.0, weight),
        "rslad": rslad(given, ONES, ONES, weight),
        "iad": iad(given, 0.1, True, weight),
    }
    for base, value in expected.items():
        method = FairArd(base=base)  # type: ignore[arg-type]
        agree(method.loss(NET, given, {**start_of(method), "weight": weight}), value)
        assert method.needs_teacher() == ("teacher",)
    modes = {base: FairArd(base=base).mode for base in ("ard", "rslad", "iad", "mtard")}  # type: ignore[arg-type]
    assert modes == {"ard": "train", "rslad": "eval", "iad": "train", "mtard": "eval"}


def test_clean_images_follow_the_adversarial_ones_through_batch_norm() -> None:
    norm = nn.BatchNorm2d(1).double()
    net, given = nn.Sequential(norm, *NET), batch()
    for method in (Ard(), Iad(), Rslad(), Mtard(), Absld()):
        norm.reset_running_stats()
        method.loss(net.train(), given, start_of(method))
        expected = 0.1 * (0.9 * given.adversarial.mean() + given.x.mean())
        torch.testing.assert_close(norm.running_mean, expected[None])
