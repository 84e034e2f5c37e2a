"""CSR against the published code's algorithm, written out with loops: the confusion, its weights, the loss."""

from __future__ import annotations

import dataclasses
import math

import by_hand
import numpy as np
import pytest
import torch
from by_hand import NAMES, assert_equal_loss

from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.methods.csr import Csr, confusion, pair_weights, with_margin

LABELS = (0, 1, 2, 0, 1, 0, 2, 1)


def official_weights(label, prediction, classes):
    """Counts of (predicted, true), diagonal left out; singular vectors by power iteration; scaled to 0.01 … 2.01."""
    m = [[0.0] * classes for _ in range(classes)]
    for true, said in zip(label, prediction, strict=True):
        if said != true:
            m[said][true] += 1.0
    v = [1.0] * classes
    for _ in range(20000):
        u = [sum(m[i][j] * v[j] for j in range(classes)) for i in range(classes)]
        v = [sum(m[i][j] * u[i] for i in range(classes)) for j in range(classes)]
        length = math.sqrt(sum(value**2 for value in v))
        v = [value / length for value in v]
    u = [sum(m[i][j] * v[j] for j in range(classes)) for i in range(classes)]
    length = math.sqrt(sum(value**2 for value in u))
    g = [[u[i] / length * v[j] for j in range(classes)] for i in range(classes)]
    low, high = min(map(min, g)), max(map(max, g))
    return [[2 * (value - low) / (high - low) + 0.01 for value in row] for row in g]


def drawn(classes, count, seed):
    """Labels of equal classes, and predictions that are wrong for about half of them."""
    random = np.random.default_rng(seed)
    label = np.repeat(np.arange(classes), count)
    wrong = random.random(len(label)) < 0.5
    return label, np.where(wrong, random.integers(classes, size=len(label)), label)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 5, 10])
def test_the_weights_are_the_published_code_s(classes):
    label, prediction = drawn(classes, 40, classes)
    found = pair_weights(confusion(label, prediction, classes))
    np.testing.assert_allclose(found, official_weights(label, prediction, classes), atol=1e-8)
    assert (found.min(), found.max()) == (pytest.approx(0.01), pytest.approx(2.01))


def test_unequal_classes_count_by_their_shares():
    label, prediction = drawn(4, 30, 0)
    twice = np.concatenate([label, label[label == 2]]), np.concatenate([prediction, prediction[label == 2]])
    np.testing.assert_allclose(confusion(*twice, 4), confusion(label, prediction, 4))
    m = confusion(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 0, 1]), 3)
    np.testing.assert_allclose(m, [[0, 1 / 2, 0], [2 / 3, 0, 0], [0, 0, 0]])  # and a class without images is zero


def test_without_a_main_direction_the_weights_stay():
    assert pair_weights(np.zeros((3, 3))) is None
    assert pair_weights(np.ones((3, 3)) - np.eye(3)) is None


def test_two_classes_of_which_one_is_confused():
    np.testing.assert_allclose(pair_weights(np.array([[0, 0.3], [0.1, 0]])), [[0.01, 2.01], [0.01, 0.01]])


def official_loss(net, batch, w, beta=6.0):
    """0.7 CE + β KL + 0.3 (w log w − w log p'_y), image by image; the constant w log w is left out."""
    losses = []
    for i in range(len(batch.y)):
        p = torch.softmax(net(batch.x[i : i + 1]), 1)[0]
        q = torch.softmax(net(batch.x_adv[i : i + 1]), 1)[0]
        y = int(batch.y[i])
        divergence = sum(p[k] * (p[k].log() - q[k].log()) for k in range(len(p)))
        losses.append(-0.7 * p[y].log() + beta * divergence - 0.3 * w[int(q.argmax())][y] * q[y].log())
    return torch.stack(losses)


def test_loss_and_gradients_over_three_epochs():
    method = Csr()
    net, batch, state = by_hand.exact(method, LABELS)
    assert_equal_loss(method.loss(net, batch, state), official_loss(net, batch, [[1.0] * 3] * 3).mean(), net)
    for epoch in range(3):
        label, prediction = drawn(3, 50, epoch)
        records = by_hand.records(train=(label, 0.7 * np.eye(3)[prediction] + 0.1))
        state = method.before_epoch(state, records, epoch)
        w = official_weights(label, prediction, 3)
        np.testing.assert_allclose(state["pair"], w, atol=1e-8)
        assert_equal_loss(method.loss(net, batch, state), official_loss(net, batch, w).mean(), net)


def test_the_survey_counts_under_pgd_with_the_true_logit_lowered():
    net = by_hand.model()
    batch = by_hand.batch(net, LABELS, x_adv=None)
    method = Csr(steps=3)
    state = method.init(NAMES)
    plain, lowered = (dataclasses.replace(method, gamma=g).survey(batch, state) for g in (0.0, 0.1))
    own = torch.arange(3) == batch.y[:, None]
    torch.testing.assert_close(lowered, torch.where(own, 0.9 * plain, plain))
    added = dataclasses.replace(method, gamma_rule="added").survey(batch, state)
    torch.testing.assert_close(added, torch.where(own, plain, plain + 0.1))
    before, after = cross_entropy(net(batch.x), batch.y), cross_entropy(plain, batch.y)
    assert (after > before).all()


def test_a_negative_true_logit_gains_from_the_factor():
    z, y = torch.tensor([[-2.0, -1.9]]), torch.tensor([0])
    assert with_margin(z, y, 0.1, "factor").argmax(1).tolist() == [0]
    assert with_margin(z, y, 0.1, "added").argmax(1).tolist() == [1]


def test_validation_records_in_the_place_of_training_images():
    method = Csr(source="validation", gamma=0.0)
    assert method.validates_first
    assert not method.surveys
    assert list(method.validation()) == ["csr"]
    label, prediction = drawn(3, 50, 1)
    valid = by_hand.records(clean=by_hand.answers((5, 5, 5), (5, 5, 5)), csr=(label, 0.7 * np.eye(3)[prediction] + 0.1))
    state = method.update(method.init(NAMES), None, valid, 0)
    np.testing.assert_allclose(state["pair"], official_weights(label, prediction, 3), atol=1e-6)
    with pytest.raises(UserError, match=r"none are held out.* or method.source to train"):
        method.update(state, None, None, 1)


def test_an_added_margin_on_validation_records_counts_close_calls():
    close, clear = [0.5, 0.48, 0.02], [0.6, 0.38, 0.02]  # log(0.5/0.48) < 0.1 < log(0.6/0.38)
    valid = by_hand.records(csr=([0, 0, 1, 2], [close, clear, [0.9, 0.05, 0.05], [0.0, 0.0, 1.0]]))
    method = Csr(source="validation", gamma_rule="added")
    state = method.update(method.init(NAMES), None, valid, 0)
    expected = pair_weights(np.array([[0, 1.0, 0], [0.5, 0, 0], [0, 0, 0]]))
    np.testing.assert_allclose(state["pair"], expected, atol=1e-6)


def test_training_records_change_nothing_and_a_factor_needs_logits():
    state = Csr().init(NAMES)
    assert Csr().update(state, by_hand.records(train=by_hand.answers((1, 1, 1), (2, 2, 2))), None, 1) is state
    with pytest.raises(UserError, match="multiplies a logit, which validation records do not hold"):
        Csr(source="validation")
