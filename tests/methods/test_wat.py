"""WAT: the two protocols' weights from given validation losses, its loss, and Theorem 1's bound."""

from __future__ import annotations

import math

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_same_loss, terms

from classwise import methods
from classwise.attacks.kl_pgd import KlPgd
from classwise.core.errors import UserError
from classwise.methods.trades import Trades
from classwise.methods.wat import Wat, theorem1, theorem2

K = len(NAMES)
LABELS = [0, 0, 0, 1, 1, 2]
P = [[0.6, 0.3, 0.1], [0.5, 0.25, 0.25], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]
Q = [[0.4, 0.4, 0.2], [0.3, 0.4, 0.3], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.5, 0.2, 0.3], [0.5, 0.3, 0.2]]


def each_loss(beta=(6.0, 6.0, 6.0), labels=LABELS):
    """CE + β KL of every row, one number at a time."""
    return [
        -math.log(p[y]) + beta[y] * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        for y, p, q in zip(labels, P, Q, strict=True)
    ]


def of_class(losses, k, labels=LABELS):
    return [loss for loss, y in zip(losses, labels, strict=True) if y == k]


def valid(labels=LABELS):
    return by_hand.records(clean=(labels, P), wat=(labels, Q))


def train(labels=(0,) * 5 + (1,) * 3 + (2,) * 2):
    return by_hand.records(train=by_hand.answers((0, 0, 0), np.bincount(labels, minlength=K)))


def softmax(values):
    whole = sum(math.exp(v) for v in values)
    return [math.exp(v) / whole for v in values]


def test_it_is_trades_with_a_weight_for_every_example():
    net = by_hand.model()
    batch = by_hand.batch(net)
    method = Wat()
    state = {**method.init(NAMES), "weight": torch.tensor([0.5, 3.0, 1.5])}
    natural, boundary = terms(net, batch)
    expected = (torch.tensor([0.5, 3.0, 1.5])[batch.y] * (natural + 6 * boundary)).mean()
    assert_same_loss(method.loss(net, batch, state), expected, net)


@pytest.mark.parametrize(("protocol", "factor"), [("paper", 1), ("code", 2)])
def test_the_first_epoch_is_trades(protocol, factor):
    net = by_hand.model()
    batch = by_hand.batch(net)
    method, base = Wat(protocol=protocol), Trades()
    found, expected = (m.loss(net, batch, m.init(NAMES)).value for m in (method, base))
    assert torch.equal(found, factor * expected)


def test_the_papers_weights_are_equation_12_and_class_means():
    method = Wat(protocol="paper", eta=0.3)
    state = method.init(NAMES)
    losses = each_loss()
    means = [sum(of_class(losses, k)) / len(of_class(losses, k)) for k in range(K)] + [sum(losses) / len(losses)]
    for epoch in (1, 2, 3):
        state = method.update(state, train(), valid(), epoch)
        w = softmax([0.3 * epoch * value for value in means])
        expected = [w[k] / share + w[K] for k, share in enumerate((0.5, 0.3, 0.2))]
        np.testing.assert_allclose(state["weight"], expected, rtol=1e-5)
        np.testing.assert_allclose(state["loss"], means[:K], rtol=1e-5)


def test_the_papers_objective_is_the_weighted_sum_of_class_means():
    """A batch whose classes have the shares of the training set: the average is Σ w_k L_k + w_0 L_0 exactly."""
    net = by_hand.model()
    batch = by_hand.batch(net, (0, 0, 0, 0, 0, 1, 1, 1, 2, 2))
    method = Wat(protocol="paper")
    state = method.update(method.init(NAMES), train(), valid(), 1)
    losses = each_loss()
    means = [sum(of_class(losses, k)) / len(of_class(losses, k)) for k in range(K)] + [sum(losses) / len(losses)]
    w = softmax([0.1 * value for value in means])
    natural, boundary = terms(net, batch)
    example = natural + 6 * boundary
    expected = sum(w[k] * example[batch.y == k].mean() for k in range(K)) + w[K] * example.mean()
    assert_same_loss(method.loss(net, batch, state), expected, net)


def test_the_codes_weights_are_its_own_rule():
    method = Wat(eta=0.3, valid_batch=4)
    state = method.init(NAMES)
    losses = each_loss()
    rows = 8  # six images in batches of four
    costs = [sum(of_class(losses, k)) * K / rows for k in range(K)] + [sum(losses) / rows]
    for epoch in (1, 2, 3):
        state = method.update(state, train(), valid(), epoch)
        w = [K * value for value in softmax([0.3 * epoch * value for value in costs])]
        np.testing.assert_allclose(state["weight"], [w[k] + w[K] for k in range(K)], rtol=1e-5)


def test_the_validation_loss_has_each_classes_beta():
    method = Wat(protocol="paper", beta={"dog": 0.5})
    state = method.update(method.init(NAMES), train(), valid(), 1)
    losses = each_loss((6.0, 0.5, 6.0))
    assert float(state["loss"][1]) == pytest.approx(sum(of_class(losses, 1)) / 2, rel=1e-5)


def test_the_users_own_weights_stay():
    plain, own = Wat(), Wat(weight=(1.0, 2.0, 0.5))
    states = [m.update(m.init(NAMES), train(), valid(), 1) for m in (plain, own)]
    np.testing.assert_allclose(states[1]["weight"], states[0]["weight"] * torch.tensor([1.0, 2.0, 0.5]))


@pytest.mark.parametrize("protocol", ["paper", "code"])
def test_a_thousand_epochs_do_not_overflow(protocol):
    method = Wat(protocol=protocol, eta=0.5, valid_batch=6)
    state = method.update(method.init(NAMES), train(), valid(), 1)
    state |= {name: 999 * state[name] for name in ("cost", "cost_all")}  # as after 999 epochs like the first
    state = method.update(state, train(), valid(), 1000)
    assert float(state["cost"].amax()) * method.eta > 710  # exp of which is no double
    assert torch.isfinite(state["weight"]).all()
    worst = int(state["loss"].argmax())
    scale = K if protocol == "code" else {0: 2.0, 1: 1 / 0.3, 2: 5.0}[worst]
    assert float(state["weight"][worst]) == pytest.approx(scale, rel=1e-4)


@pytest.mark.parametrize("protocol", ["paper", "code"])
def test_a_class_without_validation_images_is_given_the_overall_loss(protocol):
    labels = [0, 0, 0, 1, 1, 1]
    method = Wat(protocol=protocol, valid_batch=6)
    state = method.update(method.init(NAMES), train(), valid(labels), 1)
    losses = each_loss(labels=labels)
    assert float(state["loss"][2]) == pytest.approx(sum(losses) / 6, rel=1e-5)
    assert torch.isfinite(state["weight"]).all()


def test_a_probability_of_zero_does_not_make_the_loss_infinite():
    sure = np.eye(K)[[0, 1, 2]]
    records = by_hand.records(clean=([0, 1, 2], sure), wat=([0, 1, 2], np.roll(sure, 1, axis=1)))
    method = Wat(protocol="paper")
    state = method.update(method.init(NAMES), train(), records, 1)
    assert torch.isfinite(state["weight"]).all()
    assert 500 < float(state["loss"][0]) < 600  # 6 · log of the smallest float


def test_it_validates_with_its_own_training_attack():
    method = methods.parse("wat", {"steps": 7, "step": "0.007"})
    assert method.validation() == {"wat": KlPgd(steps=7, step=0.007, clamp=False)}


def test_nothing_held_out_names_the_remedy():
    method = Wat()
    with pytest.raises(UserError, match=r"wat.*data\.validation"):
        method.update(method.init(NAMES), train(), None, 1)


def test_bad_settings_are_errors():
    with pytest.raises(UserError, match="eta must be positive"):
        Wat(eta=0)
    with pytest.raises(UserError, match="valid_batch"):
        Wat(valid_batch=0)


# ---- Theorem 1 ---------------------------------------------------------------------------------------------------


def played(rounds, eta, seed=0, least=0.0):
    """A game on random losses: the state, and all losses, one row per round, the overall one last."""
    rng = np.random.default_rng(seed)
    table = least + rng.random((rounds, K + 1)) * (3 - least)
    p_sum, cost = 0.0, np.zeros(K + 1)
    for row in table:
        p_sum += float(np.dot(softmax(eta * (cost - cost.max())), row))
        cost += row
    state = {"rounds": rounds, "played": p_sum, "largest": table.max()}
    state |= {"cost": cost[:K], "cost_all": cost[K], "least": table.min(0)[:K], "least_all": table.min(0)[K]}
    return {name: torch.tensor(value) for name, value in state.items()}, table


def test_the_bound_is_the_theorems_right_hand_side():
    state, table = played(20, 0.1)
    found = theorem1(state, 0.1)
    assert found["worst"] == pytest.approx(table.min(0)[:K].max())
    assert found["bound"] == pytest.approx(float(state["played"]) / 20 + math.log(K + 1) / (0.1 * 20))
    assert found["scaled_eta"] == pytest.approx(0.1 * table.max())
    assert found["holds"] == 1
    assert found["worst"] <= found["bound"]


@pytest.mark.parametrize("eta", [0.01, 0.1, 0.5, 2.0])
def test_the_bound_without_conditions_holds_for_the_mean_of_every_class(eta):
    for seed in range(20):
        state, table = played(30, eta, seed)
        assert table.mean(0).max() <= theorem1(state, eta)["always"] + 1e-6


def test_the_conditions_are_checked():
    assert theorem1(played(20, 0.5)[0], 0.5)["holds"] == 0  # ηM > 1/2
    assert theorem1(played(20, 0.1, least=2.99)[0], 0.1)["holds"] == 0  # losses that never move


def test_the_update_keeps_what_the_bound_needs():
    method = Wat(protocol="paper", eta=0.3)
    state = method.init(NAMES)
    assert theorem1(state, method.eta) == {}
    rounds = [valid(), by_hand.records(clean=(LABELS, Q), wat=(LABELS, P))]
    table = []
    expected, cost = 0.0, np.zeros(K + 1)
    for epoch, records in enumerate(rounds, 1):
        state = method.update(state, train(), records, epoch)
        row = np.append(state["loss"], state["loss_all"]).astype(float)
        expected += float(np.dot(softmax(0.3 * cost), row))
        cost += row
        table.append(row)
    found = theorem1(state, method.eta)
    assert found["average"] == pytest.approx(expected / 2, rel=1e-5)
    assert found["worst"] == pytest.approx(np.min(table, 0)[:K].max(), rel=1e-5)
    assert float(state["largest"]) == pytest.approx(np.max(table), rel=1e-5)


# ---- Theorem 2 ---------------------------------------------------------------------------------------------------


def test_the_second_bound_is_what_the_training_images_say():
    """Of five, three and two images one, two and none are wrong: the worst class errs in 2 of 3."""
    method = Wat()
    assert theorem2(method.init(NAMES)) == {}
    attacked = by_hand.records(train=by_hand.answers((4, 1, 2), (5, 3, 2)))
    state = method.update(method.init(NAMES), attacked, valid(), 1)
    assert state["train_error"].tolist() == pytest.approx([1 / 5, 2 / 3, 0])
    assert state["train_images"].tolist() == [5, 3, 2]
    found = theorem2(state, 0.1)
    assert found["empirical"] == pytest.approx(2 / 3)
    assert found["deviation"] == pytest.approx(3 * math.sqrt(3 * math.log(20) / 20))
    assert found["corrected"] == pytest.approx(3 * math.sqrt(math.log(60) / 4))
    assert found["room"] == pytest.approx((1 - found["empirical"] - found["deviation"]) / 2)
    first, second = method.remarks(state)
    assert first.startswith("Theorem 1")
    assert second.startswith("Theorem 2")
    assert "whatever the complexity" in second


def test_the_second_bound_says_how_much_complexity_it_bears():
    state = {"train_error": torch.tensor([0.25, 0.5]), "train_images": torch.tensor([50_000.0, 50_000.0])}
    deviation = 3 * math.sqrt(2 * math.log(40) / 200_000)
    assert theorem2(state)["room"] == pytest.approx((0.5 - deviation) / 2)
    assert (
        f"once the complexity reaches {(0.5 - deviation) / 2:.3f}" in Wat().remarks({**Wat().init(NAMES), **state})[0]
    )


def test_a_checkpoint_of_an_earlier_version_has_the_first_bound_alone():
    state = played(20, 0.1)[0]
    assert theorem2(state) == {}
    assert [said[:9] for said in Wat().remarks(state)] == ["Theorem 1"]
