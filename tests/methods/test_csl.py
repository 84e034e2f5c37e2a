"""Cost-sensitive learning: the three rules by hand, the critical class, the cosine term and targeted training."""

from __future__ import annotations

import itertools

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_same_loss, terms

from classwise.core.errors import UserError
from classwise.methods.csl import Csl, mean_cosine
from classwise.methods.trades import Trades

SUPPORT = (10, 10, 20)
ACCURACY = np.array([0.8, 0.2, 0.5])


def valid(correct=(8, 2, 10), support=SUPPORT):
    return by_hand.records(clean=by_hand.answers(support, support), pgd=by_hand.answers(correct, support))


def updated(epochs=1, records=None, **settings):
    method = Csl(**settings)
    state = method.init(NAMES)
    for epoch in range(1, epochs + 1):
        state = method.update(state, None, valid() if records is None else records, epoch)
    return state


def test_inverse():
    w = 1 / ACCURACY
    np.testing.assert_allclose(updated(rule="inverse")["weight"], w / w.mean(), rtol=1e-6)


def test_inverse_has_a_floor():
    w = 1 / np.array([0.8, 0.05, 0.5])
    np.testing.assert_allclose(updated(rule="inverse", records=valid((8, 0, 10)))["weight"], w / w.mean(), rtol=1e-6)


def test_multiplicative():
    w = np.ones(3)
    for _ in range(4):
        w = w * np.exp(0.05 * (ACCURACY.mean() - ACCURACY))
        w = w / w.mean()
    np.testing.assert_allclose(updated(4)["weight"], w, rtol=1e-5)


def test_lagrangian():
    phi = np.zeros(3)
    for _ in range(2):
        phi = np.maximum(0, phi + 0.05 * (ACCURACY.mean() - ACCURACY - 0.05))
    found = updated(2, rule="lagrangian")
    np.testing.assert_allclose(found["phi"], phi, atol=1e-7)
    np.testing.assert_allclose(found["weight"], 1 + 3 * phi - phi.sum(), rtol=1e-6)
    assert float(updated(5, rule="lagrangian", rate=1.0)["phi"].sum()) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rule", "weight"),
    [
        ("inverse", 0.8 / 0.5),
        ("multiplicative", np.exp(0.05 * 0.3)),
        ("lagrangian", 1 + 3 * 0.05 * (0.3 - 0.05)),
    ],
)
@pytest.mark.parametrize("critical", ["emu", "2", 2])
def test_only_the_critical_class_is_raised(rule, weight, critical):
    np.testing.assert_allclose(updated(rule=rule, critical=critical)["weight"], [1, 1, weight], rtol=1e-6)


@pytest.mark.parametrize("rule", ["inverse", "multiplicative", "lagrangian"])
def test_the_best_class_needs_no_raise(rule):
    np.testing.assert_allclose(updated(rule=rule, critical="cat")["weight"], 1)


@pytest.mark.parametrize("rule", ["inverse", "multiplicative", "lagrangian"])
@pytest.mark.parametrize("critical", [None, "emu"])
def test_a_class_without_examples_does_not_poison_the_weights(rule, critical):
    found = updated(3, valid((8, 2, 0), (10, 10, 0)), rule=rule, critical=critical)
    assert torch.isfinite(found["weight"]).all()
    if critical is None:
        assert found["weight"][0] <= found["weight"][2] < found["weight"][1]
        assert float(found["weight"].mean()) == pytest.approx(1)


def test_an_unknown_critical_class_is_an_error_at_once():
    with pytest.raises(UserError, match=r"critical 'eum'; did you mean 'emu'"):
        Csl(critical="eum").init(NAMES)


def test_the_source_of_the_accuracies():
    train = by_hand.records(train=by_hand.answers((8, 2, 10), SUPPORT))
    method = Csl(source="train")
    assert torch.equal(method.update(method.init(NAMES), train, None, 1)["weight"], updated()["weight"])
    with pytest.raises(UserError, match=r"csl.*data\.validation.*or method\.source to train"):
        Csl().update(Csl().init(NAMES), train, None, 1)


def test_of_several_validation_attacks_the_worst_case_counts():
    one, other = (by_hand.answers(correct, SUPPORT) for correct in ((8, 9, 10), (9, 2, 19)))
    both = by_hand.records(clean=by_hand.answers(SUPPORT, SUPPORT), pgd=one, cw=other)
    assert torch.equal(updated(records=both)["weight"], updated()["weight"])


def test_no_class_right_raises_no_weight_below_one():
    assert float(updated(rule="inverse", critical="emu", records=valid((0, 0, 0)))["weight"].min()) == 1


def test_the_users_own_weights_stay():
    own = updated(3, weight={"cat": 4.0})["weight"] / updated(3)["weight"]
    np.testing.assert_allclose(own, [4, 1, 1], rtol=1e-6)


def test_uniform_weights_are_trades_exactly():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method, base = Csl(), Trades()
    assert torch.equal(*(m.loss(net, batch, m.init(NAMES)).value for m in (method, base)))
    assert torch.equal(*(by_hand.attacked(m, net, batch, m.init(NAMES)) for m in (method, base)))


# ---- the cosine term ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [(0, 1, 2, 0, 1, 0), (0, 2, 2, 0)])
def test_the_loss_with_its_regulariser(labels):
    net = by_hand.model()
    batch = by_hand.batch(net, labels)
    method = Csl(cosine=0.7)
    state = {**method.init(NAMES), "weight": torch.tensor([0.5, 2.0, 1.0])}
    natural, boundary = terms(net, batch)
    z = net(batch.adversarial).double()
    means = [z[batch.y == c].mean(0) for c in sorted(set(labels))]
    cosines = [a @ b / (a.norm() * b.norm()) for a, b in itertools.combinations(means, 2)]
    weighted = state["weight"][batch.y] * (natural + 6 * boundary)
    assert_same_loss(method.loss(net, batch, state), weighted.mean() + 0.7 * sum(cosines) / len(cosines), net)


def test_one_class_alone_has_no_cosine():
    assert float(mean_cosine(torch.tensor([[0.0, 0.0], [2.0, 1.5]]), torch.tensor([0, 2]))) == 0


# ---- targeted training -------------------------------------------------------------------------------------------


def probabilities(net, x):
    return torch.softmax(net(x), 1).detach()


@pytest.mark.parametrize("target", ["random", "likely", "unlikely"])
def test_the_attack_goes_towards_another_class(target):
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = Csl(target=target)
    x_adv = by_hand.attacked(method, net, batch, method.init(NAMES))
    assert float((x_adv - batch.x).abs().max()) <= 0.1 + 1e-6
    clean = probabilities(net, batch.x)
    if target != "random":
        others = clean.scatter(1, batch.y[:, None], -1.0 if target == "likely" else 2.0)
        goal = others.argmax(1) if target == "likely" else others.argmin(1)
        rise = (probabilities(net, x_adv) - clean).gather(1, goal[:, None])
        assert (rise > 0).all()
    assert not torch.equal(x_adv, by_hand.attacked(Csl(), net, batch, Csl().init(NAMES)))


def test_the_weakest_class_becomes_the_target():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = Csl(target="weakest")
    before = method.init(NAMES)
    untargeted = by_hand.attacked(Csl(), net, batch, before)
    assert torch.equal(by_hand.attacked(method, net, batch, before), untargeted)

    state = method.update(before, None, valid(), 1)
    assert int(state["aim"]) == 1
    x_adv = by_hand.attacked(method, net, batch, state)
    own = batch.y == 1
    assert torch.equal(x_adv[own], untargeted[own])
    assert (probabilities(net, x_adv)[~own, 1] > probabilities(net, batch.x)[~own, 1]).all()


def test_a_critical_class_is_the_target_from_the_start():
    assert int(Csl(target="weakest", critical="emu").init(NAMES)["aim"]) == 2
    assert int(updated(target="weakest", critical="emu")["aim"]) == 2


def test_bad_settings_are_errors():
    with pytest.raises(UserError, match="floor"):
        Csl(floor=0)
    with pytest.raises(UserError, match=r"'multiplicativ'; did you mean 'multiplicative'"):
        Csl(rule="multiplicativ")
