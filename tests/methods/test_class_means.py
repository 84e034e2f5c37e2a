"""Losses made of class means: FAT's variance, CODAT's worst weights and Sy-FAR's symmetry, in double precision."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_equal_loss
from scipy import optimize
from torch import Tensor

from classwise import methods
from classwise.core.errors import UserError
from classwise.methods.codat import Codat, worst_distribution
from classwise.methods.fat_var import FatVar
from classwise.methods.sy_far import SyFar

NET = by_hand.model().double()
LABELS = {"all classes": (0, 1, 2, 0, 1, 0), "one absent": (0, 2, 2, 0, 0, 0), "one alone": (1, 1, 1)}
every_batch = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)


def logits(batch) -> tuple[Tensor, Tensor]:
    """z(x) and z(x')."""
    return NET(batch.x), NET(batch.x_adv)


def entropy(z: Tensor, y: int) -> Tensor:
    """−log p_y of one example."""
    return -(z[y].exp() / z.exp().sum()).log()


def divergence(z: Tensor, z_adv: Tensor) -> Tensor:
    p, q = z.exp() / z.exp().sum(), z_adv.exp() / z_adv.exp().sum()
    return sum(p[k] * (p[k].log() - q[k].log()) for k in range(len(p)))


def plain(batch, base: str, beta: float = 6.0) -> list[Tensor]:
    """The loss of each example under PGD training or TRADES."""
    z, z_adv = logits(batch)
    pairs = list(enumerate(batch.y.tolist()))
    if base == "madry":
        return [entropy(z_adv[i], y) for i, y in pairs]
    return [entropy(z[i], y) + beta * divergence(z[i], z_adv[i]) for i, y in pairs]


def by_class(values: list[Tensor], y: Tensor) -> list[Tensor]:
    """The mean of each class that is there, in class order."""
    return [sum(v for v, c in zip(values, y, strict=True) if c == k) / int((y == k).sum()) for k in y.unique()]


# ---- FAT with a variance penalty


@every_batch
@pytest.mark.parametrize("base", ["madry", "trades"])
@pytest.mark.parametrize("over", ["present", "hundred"])
def test_fat_var_is_the_official_loss(labels, base, over):
    method, batch = FatVar(base=base, over=over, alpha=0.7), by_hand.double(NET, labels)
    losses = by_class(plain(batch, "madry"), batch.y)
    entries = losses + [torch.zeros((), dtype=torch.float64)] * (100 - len(losses) if over == "hundred" else 0)
    mean = sum(entries) / len(entries)
    variance = sum((entry - mean) ** 2 for entry in entries) / max(len(entries) - 1, 1)
    expected = sum(plain(batch, base)) / len(labels) + 0.7 * variance
    assert_equal_loss(method.loss(NET, batch, method.init(NAMES)), expected, NET)


def test_fat_var_over_a_hundred_pushes_every_class_down():
    """What the vector of a hundred numbers does, most of them zeros: no class may have a larger loss."""
    losses = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64, requires_grad=True)
    counts = torch.ones(3)
    variances = [FatVar(over=over)._variance(losses, counts) for over in ("present", "hundred")]
    slopes = [torch.autograd.grad(variance, losses)[0] for variance in variances]
    assert slopes[0][0] < 0 < slopes[0][2]
    assert (slopes[1] > 0).all()


def test_fat_var_attacks_with_cross_entropy_for_both_bases():
    batch = by_hand.double(NET)
    images = [by_hand.attacked(m, NET, batch, m.init(NAMES)) for m in (FatVar(), FatVar(base="trades"))]
    base = methods.parse("madry", {})
    assert torch.equal(images[0], by_hand.attacked(base, NET, batch, base.init(NAMES)))
    assert torch.equal(images[0], images[1])


def test_fat_var_of_more_than_a_hundred_classes():
    with pytest.raises(UserError, match="over=hundred takes at most 100 classes, got 101: set over to present"):
        FatVar(over="hundred").init([str(c) for c in range(101)])
    FatVar().init([str(c) for c in range(101)])


# ---- CODAT


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5, 2.0, 6.0, 20.0])
@pytest.mark.parametrize("seed", range(4))
def test_codat_weights_are_the_worst_of_the_ball(rho, seed):
    losses = np.random.default_rng(seed).gamma(2.0, size=8)
    q = worst_distribution(torch.from_numpy(losses), rho).numpy()
    assert q.sum() == pytest.approx(1)
    assert q.min() >= 0
    assert ((8 * q - 1) ** 2).mean() <= rho + 1e-9
    found = optimize.minimize(
        lambda w: -w @ losses, np.full(8, 1 / 8), jac=lambda w: -losses, method="SLSQP", bounds=[(0, 1)] * 8,
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() - 1},
            {"type": "ineq", "fun": lambda w: rho - ((8 * w - 1) ** 2).mean()},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert q @ losses >= -found.fun - 1e-7


@pytest.mark.parametrize("rho", [0.04, 0.4])
def test_codat_weights_are_the_closed_form_where_none_would_be_negative(rho):
    losses = np.array([1.0, 1.2, 0.9, 1.1, 1.3])
    expected = (1 + np.sqrt(rho) * (losses - losses.mean()) / losses.std()) / 5
    assert expected.min() > 0
    found = worst_distribution(torch.from_numpy(losses), rho)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.numpy() @ losses == pytest.approx(losses.mean() + np.sqrt(rho) * losses.std())


def test_codat_weights_of_equal_losses_and_of_one_class():
    np.testing.assert_allclose(worst_distribution(torch.full((4,), 0.7), 0.5), 0.25)
    np.testing.assert_allclose(worst_distribution(torch.tensor([0.7]), 0.5), 1)
    tied = worst_distribution(torch.tensor([3.0, 1.0, 3.0, 0.0], dtype=torch.float64), 50.0)
    np.testing.assert_allclose(tied, [0.5, 0, 0.5, 0])


@every_batch
@pytest.mark.parametrize("base", ["madry", "trades"])
def test_codat_is_the_mean_plus_a_part_of_the_deviation(labels, base):
    method, batch = Codat(base=base, rho=0.2), by_hand.double(NET, labels)
    losses = by_class(plain(batch, base), batch.y)
    mean = sum(losses) / len(losses)
    variance = sum((loss - mean) ** 2 for loss in losses) / len(losses)
    expected = mean + (0.2 * variance).sqrt() if len(losses) > 1 else mean
    assert_equal_loss(method.loss(NET, batch, method.init(NAMES)), expected, NET)


# ---- Sy-FAR


@every_batch
@pytest.mark.parametrize("pairs", ["present", "all"])
def test_sy_far_is_the_official_loss(labels, pairs):
    method, batch = SyFar(pairs=pairs), by_hand.double(NET, labels)
    z, z_adv = logits(batch)
    p = [row.exp() / row.exp().sum() for row in z_adv]
    k = dict(zip(batch.y.unique().tolist(), by_class(p, batch.y), strict=True))
    if pairs == "all":
        k |= {c: torch.zeros(3, dtype=torch.float64) for c in range(3) if c not in k}
    penalty = torch.zeros((), dtype=torch.float64)
    for i in sorted(k):
        for j in sorted(k):
            if i < j:
                a, b = k[i][j], k[j][i]
                penalty = penalty + abs(a - b) / (a + b + 0.1) * (a + b)
    natural, robust = (sum(entropy(row, y) for row, y in zip(s, labels, strict=True)) for s in (z, z_adv))
    expected = (0.1 * natural + robust) / len(labels) + 10 * penalty
    assert_equal_loss(method.loss(NET, batch, method.init(NAMES)), expected, NET)


# ---- several processes


@pytest.mark.parametrize("method", [FatVar(), FatVar(base="trades"), Codat(), SyFar()], ids=lambda m: type(m).__name__)
def test_processes_that_share_a_batch_make_its_gradient_together(method):
    batch, state = by_hand.double(NET, (0, 1, 2, 0, 1, 0, 2)), method.init(NAMES)

    def part(own):
        value = method.loss(NET, own, state).value.sum() / len(batch.y)
        return value.detach(), by_hand.gradients(NET, value)

    (first, slope), (second, other) = by_hand.in_two_processes(batch, 3, part)
    whole = method.loss(NET, batch, state).value.mean()
    torch.testing.assert_close(first + second, whole, atol=1e-10, rtol=0)
    torch.testing.assert_close(slope + other, by_hand.gradients(NET, whole), atol=1e-10, rtol=0)
