"""The knobs that change the last layer's weights: by hand, and on a model whose right change is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tilted import EPS, Rows, images
from torch import nn

import classwise as cw
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.models.last_layer import find_last_layer
from classwise.repairing.knobs.decosam import RHO, radii, sharpness_aware
from classwise.repairing.knobs.head_training import Head
from classwise.repairing.knobs.last_layer import ETA, class_weights
from classwise.repairing.knobs.norms import TAUS, rescaled

pytestmark = pytest.mark.slow  # repairs models

ATTACK = "pgd-5"


class Short(Rows):
    """Class 2 is weak because its row of weights is short; there is no bias to blame."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.linear.bias.zero_()
            self.linear.weight[2] *= 0.8


def test_norms_move_towards_their_mean() -> None:
    weight = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])  # norms 5, 1 and 0: mean 2
    assert np.array_equal(rescaled(weight, 0), weight)
    assert np.linalg.norm(rescaled(weight, 1), axis=1) == pytest.approx([2, 2, 0])
    assert rescaled(weight, 0.5)[0] == pytest.approx(weight[0] * (2 / 5) ** 0.5)


def test_norms_raise_a_class_of_short_weights_and_keep_the_bias() -> None:
    found = cw.repair(Short(), images(), ATTACK, EPS, knob="norms")
    assert found.rounds["tau"].tolist()[1:] == list(TAUS)
    assert found.before.worst.name == "bottom"
    assert found.calibrated()["after"]["worst"] > found.calibrated()["before"]["worst"] + 0.1
    assert found.norms["bottom"] > 1 > found.norms["top"]
    assert set(found.bias.values()) == {0.0}
    assert torch.equal(found.model.linear.bias, Short().linear.bias)
    given = cw.repair(Short(), images(), ATTACK, EPS, knob="norms", tau=0.6)
    assert given.rounds["tau"].tolist()[1:] == [0.6]


def test_norms_then_a_bias() -> None:
    found = cw.repair(Rows(), images(), ATTACK, EPS, knob="bias+norms", tau=1.0, rounds=3)
    assert found.rounds["tau"].notna().tolist() == [False, True, False, False, False]
    assert found.rounds["step"].notna().tolist() == [False, False, True, True, True]
    assert found.bias["bottom"] > 0.3


def test_class_weights_are_exponential_in_the_errors_so_far() -> None:
    found = class_weights([np.array([0.5, 0.1, np.nan]), np.array([0.4, 0.2, np.nan])])
    odds = np.exp(ETA * np.array([1.1, 1.7, 0.0]))
    assert found == pytest.approx(3 * odds / odds.sum())


@pytest.mark.parametrize(("knob", "lr"), [("last_layer", 0.05), ("decosam", 0.5)])
def test_training_the_last_layer_leaves_all_else(knob: Any, lr: float) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found, again = (cw.repair(model, images(), ATTACK, EPS, knob=knob, rounds=4, lr=lr) for _ in range(2))
    assert found.chosen == again.chosen > 0
    for name, value in found.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
        frozen = name.startswith("0.") or (knob == "decosam" and name == "3.bias")
        assert torch.equal(value, before[name]) == frozen, name
        assert torch.equal(model.state_dict()[name], before[name])
    assert found.calibrated()["after"]["average"] > found.calibrated()["before"]["average"]


def test_the_radius_of_a_class_falls_with_its_norm() -> None:
    weight = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    share = torch.softmax(torch.tensor([-5.0, -1.0], dtype=torch.float64), 0)
    assert radii(weight, 1.0).tolist() == pytest.approx((RHO * 2 * share * 3).tolist())


def test_the_gradient_is_that_at_the_perturbed_weights() -> None:
    model = Rows().double().requires_grad_(False)
    head = Head(model=model, weight=model.linear.weight.requires_grad_(), bias=model.linear.bias)
    x = torch.rand(7, 1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    found = sharpness_aware(head, x, y, tau=0.3)

    def gradient(weight: torch.Tensor) -> torch.Tensor:
        own = weight.clone().requires_grad_()
        loss = cross_entropy(x.mean((1, 3)) @ own.T + model.linear.bias, y).mean()
        return torch.autograd.grad(loss, own)[0]

    weight = model.linear.weight.detach()
    g = gradient(weight)
    norms = [float(row.norm()) for row in weight]
    odds = np.exp(-0.3 * np.array(norms))
    moved = weight.clone()
    for k in range(3):
        moved[k] += RHO * 3 * odds[k] / odds.sum() * np.mean(norms) * g[k] / g[k].norm()
    assert torch.allclose(found, gradient(moved), atol=1e-12)
    assert torch.equal(model.linear.weight, weight)


class Scaled(Rows):
    """Computes more after its last layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Twice(Rows):
    """Uses its last layer twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear(x.mean((1, 3)))
        return super().forward(x)


def test_the_last_layer_is_found_by_what_it_computes() -> None:
    x = images().batch(np.arange(8))[0]
    found = find_last_layer(Rows(), x)
    assert found is not None
    assert (found.name, found.takes_bias, found.takes_weight) == ("linear", True, True)
    bare = find_last_layer(Rows(bias=False), x)
    assert bare is not None
    assert (bare.takes_bias, bare.takes_weight) == (False, True)
    assert find_last_layer(Scaled(), x) is None
    assert find_last_layer(Twice(), x) is None
    pointwise = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 3, 1), nn.Flatten())
    assert getattr(find_last_layer(pointwise, x), "name", None) == "1"
    tied = nn.Sequential(nn.Flatten(), nn.Linear(12, 12), nn.Linear(12, 12))
    tied[2].weight = tied[1].weight
    assert getattr(find_last_layer(tied, x), "takes_weight", None) is False


def test_a_layer_without_bias_is_trained_with_one_outside() -> None:
    model = Rows(bias=False)
    before = model.linear.weight.clone()
    found = cw.repair(model, images(), ATTACK, EPS, knob="last_layer", rounds=2, lr=0.5)
    assert torch.equal(model.linear.weight, before)
    assert model.linear.weight.requires_grad
    assert found.rounds["kind"].tolist() == ["unchanged", "round", "round"]
    assert found.by_round["bias"].abs().max() > 0


def test_knobs_of_the_weights_need_a_last_layer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Use --knob bias"):
        cw.repair(Scaled(), images(), ATTACK, EPS, knob="norms")
    found = cw.repair(Scaled(), images(), ATTACK, EPS, rounds=2, out=tmp_path / "run")
    x = images().batch(np.arange(20))[0]
    bias = torch.tensor(list(found.bias.values()))
    assert torch.allclose(found.model(x), Scaled()(x) + bias, atol=1e-6)
