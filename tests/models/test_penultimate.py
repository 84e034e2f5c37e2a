from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.models import load_model, names
from classwise.models.penultimate import penultimate


@pytest.mark.parametrize(
    "name", ["lenet", "resnet:width=4,blocks=1", "resnet:width=4,blocks=1,head=cosine", "smallcnn"]
)
def test_are_the_features_of_a_built_in_network(name: str) -> None:
    model = load_model(name, num_classes=3, in_channels=3, normalize="mean=0.5,std=0.25")
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(penultimate(model)(x), model.features(x))
    assert not model.head._forward_pre_hooks


def test_of_any_network_go_into_the_last_linear_layer_and_carry_gradients() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    x = torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
    features = penultimate(model)(x)
    torch.testing.assert_close(model[3](features), model(x))
    assert torch.autograd.grad(features.sum(), x)[0].abs().sum() > 0


def test_a_network_without_a_linear_head_is_refused() -> None:
    with pytest.raises(UserError, match="Sequential has no linear layer"):
        penultimate(nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten()))


def test_a_head_that_is_never_asked_is_refused() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)

    with pytest.raises(UserError, match="does not call its last linear layer"):
        penultimate(Idle())(torch.zeros(1, 1, 2, 2))


def test_is_no_network_of_its_own() -> None:
    assert "penultimate" not in names()
