"""The normalising layer: its constants, its ways of being written, and its errors."""

from __future__ import annotations

import pytest
import torch

from classwise.core.errors import UserError
from classwise.models import load_model
from classwise.models.normalize import Normalize, normalization_of


def test_subtracts_the_mean_and_divides_by_the_std() -> None:
    x = torch.tensor([0.5, 0.25, 1.0]).reshape(1, 3, 1, 1)
    out = Normalize((0.5, 0.5, 0.5), (0.25, 0.5, 0.125))(x)
    assert out.flatten().tolist() == [0.0, -0.5, 4.0]


@pytest.mark.parametrize(
    "spec", ["lenet:mean=0.5;0.4;0.3,std=0.2;0.2;0.1", "lenet:normalize=cifar10", "lenet:normalize=none"]
)
def test_an_argument_goes_before_the_spec(spec: str) -> None:
    model = load_model(spec, num_classes=10, normalize="imagenet")
    found = normalization_of(model)
    assert found is not None
    assert found[0] == pytest.approx((0.485, 0.456, 0.406))


@pytest.mark.parametrize(
    "normalize",
    ["mean=0.5;0.4;0.3,std=0.2;0.2;0.1", ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)), [[0.5, 0.4, 0.3], [0.2, 0.2, 0.1]]],
)
def test_ways_of_writing_it(normalize: object) -> None:
    model = load_model("lenet", num_classes=10, normalize=normalize)  # type: ignore[arg-type]
    mean, std = normalization_of(model) or ((), ())
    assert mean == pytest.approx((0.5, 0.4, 0.3))
    assert std == pytest.approx((0.2, 0.2, 0.1))


def test_in_the_spec() -> None:
    model = load_model("resnet:width=2,blocks=1,mean=0.5,std=0.25", num_classes=10)
    assert normalization_of(model) == ((0.5,), (0.25,))


def test_any_module_can_be_normalised() -> None:
    model = load_model(torch.nn.Flatten(), normalize=((0.5,), (0.5,)))
    assert model(torch.ones(1, 3, 1, 1)).tolist() == [[1.0, 1.0, 1.0]]


def test_none_means_none() -> None:
    assert normalization_of(load_model("lenet", num_classes=10, normalize="none")) is None


def test_channels_must_agree() -> None:
    model = load_model("smallcnn", num_classes=10, normalize="cifar10")
    with pytest.raises(UserError, match="normalises 3 channels but the images have 1"):
        model(torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize("normalize", [((0.5,), (0.0,)), ((0.5, 0.5), (1.0,)), ((), ())])
def test_impossible_constants(normalize: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(UserError, match="one mean and one positive std"):
        load_model("lenet", num_classes=10, normalize=normalize)
