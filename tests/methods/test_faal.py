"""FAAL against a constrained solver, and its losses written out image by image."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
import torch
from by_hand import assert_equal_loss
from scipy.optimize import minimize

from classwise.methods.faal import Faal, worst_distribution

LABELS = (0, 1, 2, 0, 1, 0, 2, 1)


def solved(a, r):
    """argmax Σ q a over the simplex with KL(U ‖ q) ≤ r, by sequential quadratic programming."""
    a, classes = np.asarray(a), len(a)
    bounds = {
        "type": "ineq",
        "fun": lambda q: r + np.log(classes * q).mean(),
        "jac": lambda q: 1 / (classes * q),
    }
    total = {"type": "eq", "fun": lambda q: q.sum() - 1, "jac": lambda q: np.ones(classes)}
    found = minimize(
        lambda q: -q @ a,
        np.full(classes, 1 / classes),
        jac=lambda q: -a,
        method="SLSQP",
        bounds=[(0.005, 1)] * classes,
        constraints=[bounds, total],
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("classes", [3, 10])
def test_the_closed_form_is_the_solution(classes, radius):
    a = np.random.default_rng(classes).normal(size=classes)
    q = worst_distribution(a, radius)
    np.testing.assert_allclose(q, solved(a, radius), atol=1e-4)
    assert q @ a >= solved(a, radius) @ a - 1e-8
    slope, level = np.polyfit(a, 1 / q, 1)  # stationary: 1/q_c falls in a straight line with a_c
    np.testing.assert_allclose(1 / q, slope * a + level, rtol=1e-8)
    assert slope < 0
    assert q.sum() == pytest.approx(1, abs=1e-12)
    assert -np.log(classes * q).mean() == pytest.approx(radius, abs=1e-10)


def test_the_largest_weight_at_half_with_ten_classes():
    q = worst_distribution(np.array([1.0] + [0.0] * 9), 0.5)
    np.testing.assert_allclose(10 * q, [5.75] + [0.47] * 9, atol=0.01)


def test_scale_and_shift_do_not_matter_and_equal_classes_weigh_alike():
    a = np.random.default_rng(0).normal(size=5)
    np.testing.assert_allclose(worst_distribution(a, 0.5), worst_distribution(1e-3 * a + 7, 0.5), rtol=1e-9)
    np.testing.assert_array_equal(worst_distribution(np.full(4, -0.3), 0.5), 0.25)
    np.testing.assert_array_equal(worst_distribution(a, 0.0), 0.2)


@pytest.mark.parametrize("radius", [1e-8, 5.0, 50.0])
@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
def test_extreme_radii_give_a_distribution(values, radius):
    q = worst_distribution(np.array(values), radius)
    assert np.isfinite(q).all()
    assert (q > 0).all()
    assert q.sum() == pytest.approx(1)
    assert -np.log(4 * q).mean() <= radius * (1 + 1e-6)


def example_losses(base, net, batch, beta):
    """ℓ of every image, from its probabilities."""
    losses = []
    for i in range(len(batch.y)):
        p, q = (torch.softmax(net(images[i : i + 1]), 1)[0] for images in (batch.x, batch.x_adv))
        y = int(batch.y[i])
        if base == "madry":
            losses.append(-q[y].log())
        elif base == "trades":
            losses.append(-p[y].log() + beta * sum(p[k] * (p[k] / q[k]).log() for k in range(3)))
        else:
            other = max(q[k] for k in range(3) if k != y)
            boosted = -q[y].log() - (1.0001 - other + 1e-12).log()
            divergence = sum(p[k] * (p[k].log() - (q[k] + 1e-12).log()) for k in range(3))
            losses.append(boosted + beta * divergence * (1.0000001 - p[y]))
    return torch.stack(losses)


def margin_sums(net, batch):
    """Σ over each class's images of max_{j≠y} p_j − p_y."""
    sums = [0.0] * 3
    for i in range(len(batch.y)):
        q, y = torch.softmax(net(batch.x_adv[i : i + 1]), 1)[0].tolist(), int(batch.y[i])
        sums[y] += max(q[k] for k in range(3) if k != y) - q[y]
    return sums


@pytest.mark.parametrize("base", ["madry", "trades", "mart"])
def test_loss_and_gradients(base):
    method = Faal(base=base, start="uniform" if base == "madry" else "gaussian", radius=0.3)
    net, batch, state = by_hand.exact(method, LABELS)
    q = worst_distribution(np.array(margin_sums(net, batch)), 0.3)
    assert np.ptp(q) > 0.1
    weight = torch.tensor([3 * q[int(y)] for y in batch.y])
    assert_equal_loss(method.loss(net, batch, state), (weight * example_losses(base, net, batch, 6.0)).mean(), net)


def test_an_absent_class_has_margin_zero():
    method = Faal(radius=0.3)
    net, batch, state = by_hand.exact(method, (0, 0, 1, 1, 1, 0))
    sums = margin_sums(net, batch)
    assert sums[2] == 0
    q = worst_distribution(np.array(sums), 0.3)
    weight = torch.tensor([3 * q[int(y)] for y in batch.y])
    assert_equal_loss(method.loss(net, batch, state), (weight * example_losses("madry", net, batch, 6.0)).mean(), net)


def test_margins_are_summed_over_all_processes():
    method = Faal(radius=0.3)
    net, batch, state = by_hand.exact(method, LABELS)
    parts = by_hand.in_two_processes(batch, 3, lambda part: method.loss(net, part, state).value)
    torch.testing.assert_close(torch.cat(parts), method.loss(net, batch, state).value, atol=1e-10, rtol=0)


def test_adversarial_images_go_first_and_clean_ones_always_follow():
    for base in ("madry", "trades", "mart"):
        method, net = Faal(base=base, start="gaussian"), by_hand.model()
        batch, seen = by_hand.batch(net), []
        net.register_forward_pre_hook(lambda module, inputs: seen.append("c" if inputs[0] is batch.x else "a"))  # noqa: B023
        method.loss(net, batch, method.init(by_hand.NAMES))
        assert "".join(seen) == "ac"
