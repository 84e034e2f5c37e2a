"""Optimisers by spec, and what decays in them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from classwise.core.errors import UserError
from classwise.training import optimizer
from classwise.training.optimizer import Adam, Sgd


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(2, 3))


def test_sgd_takes_the_step_of_its_formula() -> None:
    """Two steps of momentum .9 with decay λ: v ← .9 v + (g + λw), w ← w − ηv."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    made = optimizer.parse("sgd:lr=0.1,momentum=0.9,weight_decay=0.5").build(layer)
    w, v = 2.0, 0.0
    for _ in range(2):
        layer.weight.grad = torch.tensor([[3.0]])
        made.step()
        v = 0.9 * v + 3 + 0.5 * w
        w -= 0.1 * v
    assert layer.weight.item() == pytest.approx(w)


def test_specs_reach_torch() -> None:
    made = optimizer.parse("sgd:lr=0.05,momentum=0.8,nesterov=true,weight_decay=5e-4").build(network())
    group = made.param_groups[0]
    assert isinstance(made, torch.optim.SGD)
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.05, 0.8, True, 5e-4)
    adam = optimizer.parse("adam:lr=2e-3,betas=0.8-0.99,eps=1e-6").build(network())
    assert type(adam) is torch.optim.Adam
    assert (adam.param_groups[0]["betas"], adam.param_groups[0]["eps"]) == ((0.8, 0.99), 1e-6)
    assert isinstance(optimizer.parse("adam:decoupled=true").build(network()), torch.optim.AdamW)


def test_everything_decays_unless_told_otherwise() -> None:
    model = network()
    (group,) = optimizer.parse("sgd").build(model).param_groups
    assert group["params"] == list(model.parameters())
    assert group["weight_decay"] == 2e-4


@pytest.mark.parametrize("name", optimizer.KINDS)
def test_norms_can_be_left_from_the_decay(name: str) -> None:
    model = network()
    made = optimizer.parse(f"{name}:weight_decay=0.1,decay_norm=false").build(model)
    decayed, spared = made.param_groups
    conv, batch_norm, group_norm, _, linear = model.children()
    assert decayed["params"] == [*conv.parameters(), *linear.parameters()]
    assert spared["params"] == [*batch_norm.parameters(), *group_norm.parameters()]
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)


def test_a_model_of_norms_alone_has_one_group() -> None:
    (group,) = Sgd(decay_norm=False).build(nn.BatchNorm1d(3)).param_groups
    assert group["weight_decay"] == 0.0


def test_frozen_parameters_are_not_trained() -> None:
    model = network()
    model[0].requires_grad_(False)  # type: ignore[index]
    trained = [p for group in Sgd().build(model).param_groups for p in group["params"]]
    assert trained == [p for p in model.parameters() if p.requires_grad]
    with pytest.raises(UserError, match="no parameter to train"):
        Sgd().build(model.requires_grad_(False))


def test_the_rate_is_set_in_all_groups() -> None:
    made = Sgd(decay_norm=False).build(network())
    optimizer.set_rate(made, 0.025)
    assert [group["lr"] for group in made.param_groups] == [0.025, 0.025]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("sdg", "did you mean 'sgd'"),
        ("sgd:lr=0", "lr must be positive, got 0"),
        ("sgd:lr=fast", "sgd.lr must be a number"),
        ("sgd:weight_decay=-1", "weight_decay must be at least 0"),
        ("sgd:momentum=1", r"momentum must be at least 0 and below 1"),
        ("sgd:momentum=0,nesterov=true", "nesterov needs momentum"),
        ("adam:momentum=0.9", "unknown setting of adam 'momentum'"),
        ("adam:betas=0.9", "betas must be two numbers"),
        ("adam:betas=0.9-1", "betas must be at least 0 and below 1, got 1"),
        ("adam:eps=0", "eps must be positive"),
    ],
)
def test_bad_optimizers(wanted: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        optimizer.parse(wanted)


def test_objects_are_taken_as_they_are() -> None:
    assert optimizer.parse(Adam(lr=0.1)) == Adam(lr=0.1)
