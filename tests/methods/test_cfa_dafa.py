"""CFA's radii and β, and DAFA's weights, from given training records; their losses and attacks."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_same_loss, terms

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.threat import wide
from classwise.methods import Loss
from classwise.methods.cfa import Cfa
from classwise.methods.dafa import Dafa, class_weights, similarity
from classwise.methods.madry import Madry
from classwise.methods.trades import Trades


def train(correct=(8, 2, 10), support=(10, 10, 20)):
    return by_hand.records(train=by_hand.answers(correct, support))


def reach(method, net, batch, state):
    """How far each image was moved."""
    return (by_hand.attacked(method, net, batch, state) - batch.x).abs().flatten(1).amax(1)


# ---- CFA ---------------------------------------------------------------------------------------------------------


def test_cfa_radii_and_betas_by_hand():
    method = Cfa(lambda1=0.3, lambda2=0.5)
    state = method.update(method.init(NAMES), train(), None, 10)
    np.testing.assert_allclose(state["margin"], [1.1, 0.5, 0.8], rtol=1e-6)
    np.testing.assert_allclose(state["beta"], [7.8, 4.2, 6.0], rtol=1e-6)
    np.testing.assert_allclose(state["weight"], 1 / (1 + np.array([7.8, 4.2, 6.0])), rtol=1e-6)
    again = method.update(state, train((10, 10, 20)), None, 11)
    np.testing.assert_allclose(again["margin"], 1.3, rtol=1e-6)  # from ε, not from the last radius


def test_cfa_begins_after_ten_epochs():
    method = Cfa()
    start = method.init(NAMES)
    assert method.update(start, train(), None, 9) is start
    assert method.update(start, None, None, 10) is start


def held_out(correct=(8, 2, 10), support=(10, 10, 20)):
    return by_hand.records(clean=by_hand.answers(support, support), pgd=by_hand.answers(correct, support))


def test_cfa_of_a_model_that_is_fine_tuned_begins_with_its_accuracies_on_held_out_images():
    method = Cfa(begin=0)
    found, later = (
        method.update(method.init(NAMES), None, held_out(), 0),
        method.update(method.init(NAMES), train(), None, 1),
    )
    for name in ("margin", "beta", "weight"):
        torch.testing.assert_close(found[name], later[name])
    assert torch.equal(Cfa(begin=1).update(method.init(NAMES), None, held_out(), 0)["margin"], torch.ones(3))


def test_dafa_of_a_model_that_is_fine_tuned_has_its_weights_from_held_out_images():
    method = Dafa(warmup=0)
    assert method.validates_first
    assert not Dafa().validates_first
    start = method.init(NAMES)
    found, later = method.update(start, None, held_out(), 0), Dafa(warmup=1).update(start, train(), None, 1)
    torch.testing.assert_close(found["weight"], later["weight"])
    assert not torch.equal(found["weight"], start["weight"])
    assert method.update(found, train(), held_out(), 1) is found


def test_cfa_parts_can_be_left_out():
    start = Cfa().init(NAMES)
    assert torch.equal(Cfa(ccm=False).update(start, train(), None, 10)["margin"], start["margin"])
    assert torch.equal(Cfa(ccr=False).update(start, train(), None, 10)["beta"], start["beta"])


def test_cfa_loss():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = Cfa()
    state = method.update(method.init(NAMES), train(), None, 10)
    natural, boundary = terms(net, batch)
    beta = torch.tensor([1.3, 0.7, 1.0])[batch.y].double() * 6
    expected = ((natural + beta * boundary) / (1 + beta)).mean()
    assert_same_loss(method.loss(net, batch, state), expected, net)


def test_cfa_before_it_begins_is_trades_over_one_plus_beta():
    net = by_hand.model()
    batch = by_hand.batch(net)
    found, base = (m.loss(net, batch, m.init(NAMES)).value for m in (Cfa(), Trades()))
    torch.testing.assert_close(found, base / 7)
    assert torch.equal(*(by_hand.attacked(m, net, batch, m.init(NAMES)) for m in (Cfa(), Trades(step=0.025))))


def test_cfa_on_pgd_training():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method, base = Cfa(base="madry", start="uniform"), Madry()
    start = method.init(NAMES)
    assert torch.equal(method.loss(net, batch, start).value, base.loss(net, batch, base.init(NAMES)).value)
    torch.testing.assert_close(*(by_hand.attacked(m, net, batch, m.init(NAMES)) for m in (method, base)))
    state = method.update(start, train(), None, 10)
    assert torch.equal(state["weight"], torch.ones(3))
    np.testing.assert_allclose(state["margin"], [1.3, 0.7, 1.0], rtol=1e-6)
    expected = cross_entropy(net(batch.adversarial), batch.y).double().mean()
    assert_same_loss(method.loss(net, batch, state), expected, net)


def test_cfa_step_does_not_grow_with_the_radius():
    net = by_hand.model()
    batch = by_hand.batch(net, (0, 1), x=torch.full((2, 1, 1, 5), 0.5))
    method = Cfa(steps=1)
    state = {**method.init(NAMES), "margin": torch.tensor([2.0, 1.0, 1.0])}
    np.testing.assert_allclose(reach(method, net, batch, state), 0.025, atol=0.005)
    np.testing.assert_allclose(reach(Cfa(steps=20), net, batch, state), [0.2, 0.1], atol=1e-6)


def test_cfa_a_class_without_examples_keeps_its_values():
    method = Cfa()
    state = method.update(method.init(NAMES), train(), None, 10)
    after = method.update(state, train((8, 2, 0), (10, 10, 0)), None, 11)
    for name in ("margin", "beta", "weight"):
        torch.testing.assert_close(after[name], state[name])


def friendly(net, x, y, eps, tau, steps, size, start):
    """CFA's FAT attack image by image: it stops for good after `tau` steps from misclassified points."""
    found = []
    for image, label, radius, first in zip(x, y, eps, start, strict=True):
        point, left = first[None], tau
        for _ in range(steps):
            point = point.detach().requires_grad_()
            z = net(point)
            if left == 0:
                break
            left -= int(z.argmax()) != int(label)
            (gradient,) = torch.autograd.grad(cross_entropy(z, label[None]).sum(), point)
            moved = point.detach() + size * gradient.sign()
            point = torch.max(torch.min(moved, image + radius), image - radius).clamp(0, 1)
        found.append(point.detach()[0])
    return torch.stack(found)


@pytest.mark.parametrize("tau", [1, 3])
def test_cfa_on_friendly_adversarial_training(tau):
    method = Cfa(base="fat", start="uniform", tau=tau, steps=10)
    net, batch, state = by_hand.exact(method, (0, 1, 2, 0, 1, 0))
    state["margin"] = torch.tensor([1.3, 0.7, 1.0], dtype=torch.float64)
    eps = 0.1 * state["margin"][batch.y]
    key = rng.keys(0, batch.key)
    start = (batch.x + wide(eps, batch.x) * (2 * rng.uniform(key, (1, 1, 5)).double() - 1)).clamp(0, 1)
    found = by_hand.attacked(method, net, batch, state)
    torch.testing.assert_close(found, friendly(net, batch.x, batch.y, eps, tau, 10, 0.025, start), atol=1e-8, rtol=0)
    plain = by_hand.attacked(Cfa(base="madry", start="uniform"), net, batch, state)
    assert not torch.equal(found, plain)  # some stopped early
    assert_same_loss(method.loss(net, batch, state), cross_entropy(net(batch.adversarial), batch.y).mean(), net)


def test_cfa_passes_the_clean_batch_once_more_after_the_step():
    net = by_hand.model()
    batch, seen = by_hand.batch(net), []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for clean_pass in (False, True):
        method = Cfa(clean_pass=clean_pass)
        state = method.init(NAMES)
        assert method.after_step(net, batch, state, Loss(torch.zeros(6), torch.zeros(6, 3))) is state
        assert len(seen) == clean_pass
    assert seen[0] is batch.x


# ---- DAFA --------------------------------------------------------------------------------------------------------


def double_loop(s, strength):
    """As the paper has it, pair by pair."""
    w = np.ones(len(s))
    for i in range(len(s)):
        for j in range(len(s)):
            if s[i, i] < s[j, j]:
                w[i] += strength * s[i, j] * s[j, j]
            elif s[i, i] > s[j, j]:
                w[i] -= strength * s[j, i] * s[i, i]
    return w


@pytest.mark.parametrize("classes", [3, 10])
def test_dafa_weights_are_the_double_loop_and_sum_to_c(classes):
    s = np.random.default_rng(classes).dirichlet(np.ones(classes), classes) * 0.5 + 0.5 * np.eye(classes)
    found = class_weights(s, 1.0)
    np.testing.assert_allclose(found, double_loop(s, 1.0), rtol=1e-12)
    assert found.sum() == pytest.approx(classes)


def test_dafa_equal_classes_weigh_the_same():
    np.testing.assert_array_equal(class_weights(np.full((3, 3), 1 / 3), 1.0), 1)


def test_dafa_weights_stay_positive():
    s = np.array([[0.9, 0.05, 0.05], [0.6, 0.3, 0.1], [0.6, 0.1, 0.3]])
    assert double_loop(s, 1.0).min() < 0
    found = class_weights(s, 1.0)
    assert found.min() == pytest.approx(0.05)
    assert found.sum() == pytest.approx(3)


def test_dafa_similarity_is_the_mean_probability():
    labels = [0, 0, 1, 1, 1]
    p = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    s = similarity(by_hand.records(train=(labels, p)))
    np.testing.assert_allclose(s, [p[:2].mean(0), p[2:].mean(0), [0, 0, 0]], atol=1e-6)
    found = class_weights(s, 1.0)
    assert found[2] == 1  # no examples, no exchange
    assert found[:2].sum() == pytest.approx(2)


def test_dafa_weighs_cross_entropy_but_not_the_divergence():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = Dafa(warmup=2)
    state = method.update(method.init(NAMES), train(), None, 2)
    w = torch.from_numpy(class_weights(similarity(train()), 1.0))
    assert len(w.unique()) == 3
    natural, boundary = terms(net, batch)
    assert_same_loss(method.loss(net, batch, state), (w[batch.y] * natural + 6 * boundary).mean(), net)
    np.testing.assert_allclose(state["margin"], w, rtol=1e-6)


def test_dafa_is_trades_until_then_and_fixed_afterwards():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method, base = Dafa(warmup=2), Trades()
    start = method.init(NAMES)
    assert torch.equal(method.loss(net, batch, start).value, base.loss(net, batch, base.init(NAMES)).value)
    assert method.update(start, train(), None, 1) is start
    state = method.update(start, train(), None, 2)
    assert method.update(state, train((10, 10, 20)), None, 3) is state


@pytest.mark.parametrize(("step", "share"), [(None, 0.25), (0.04, 0.4)])
def test_dafa_step_and_radius_grow_together(step, share):
    net = by_hand.model()
    batch = by_hand.batch(net, (0, 1), x=torch.full((2, 1, 1, 5), 0.5))
    margin = torch.tensor([1.5, 0.6, 1.0])
    one, many = Dafa(steps=1, step=step), Dafa(steps=20, step=step)
    state = {**one.init(NAMES), "margin": margin}
    np.testing.assert_allclose(reach(one, net, batch, state), share * 0.1 * margin[:2], atol=0.005)
    np.testing.assert_allclose(reach(many, net, batch, state), 0.1 * margin[:2], atol=1e-6)


def test_dafa_warmup_must_be_an_epoch():
    with pytest.raises(UserError, match="warmup must be at least 0"):
        Dafa(warmup=-1)
