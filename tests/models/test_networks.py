"""The built-in networks: sizes known from the literature, and one contract over all of them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn

from classwise.core.errors import UserError
from classwise.models import describe, load_model, names
from classwise.models.last_layer import Change, changed, find_last_layer
from for_each import for_each

# Small members of each family, but for two that have one size.
SMALL = {
    "densenet": "densenet:growth=4,blocks=2-2",
    "googlenet": "googlenet",
    "inception_v3": "inception_v3",
    "lenet": "lenet",
    "preact_resnet": "preact_resnet:width=4,blocks=1-1",
    "resnet": "resnet:width=4,blocks=1-1-1",
    "smallcnn": "smallcnn:in_channels=3",
    "vgg": "vgg-16:width=4",
    "wideresnet": "wideresnet-10-1",
}
SIZES = {
    "smallcnn": 312_202,
    "lenet": 62_006,
    "resnet-18": 11_173_962,
    "resnet-34": 21_282_122,
    "resnet-50": 23_520_842,
    "preact_resnet": 11_172_170,
    "preact_resnet:final_norm=false": 11_171_146,
    "wideresnet-28-10": 36_479_194,
    "wideresnet-34-10": 46_160_474,
    "wideresnet:depth=32,width=10": 46_160_474,
    "vgg-16": 14_728_266,
    "vgg-19": 20_040_522,
    "densenet-121": 6_956_298,
    "googlenet": 6_166_250,
    "resnet-18:stem=imagenet,num_classes=1000": 11_689_512,
    "resnet-50:stem=imagenet,num_classes=1000": 25_557_032,
}


def parameters(spec: str) -> int:
    with torch.device("meta"):  # counts without drawing 46 million numbers
        return sum(p.numel() for p in load_model(spec, num_classes=10).parameters())


@for_each(("spec", "size"), SIZES.items())
def test_number_of_parameters(spec: str, size: int) -> None:
    assert parameters(spec) == size


def test_every_network_is_in_the_contract() -> None:
    assert names() == sorted(SMALL)
    assert all(describe(name).endswith(".") and len(describe(name)) < 121 for name in names())


@functools.cache
def small(name: str) -> nn.Module:
    """A small member of a family, with a head that is not zero."""
    model = load_model(SMALL[name], num_classes=7)
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(1))
    return model


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if SMALL[name] == name != "lenet" else ()) for name in SMALL]
)
class TestContract:
    @pytest.mark.slow
    @pytest.mark.parametrize("size", [32, 64])
    def test_logits_are_the_head_of_the_features(self, name: str, size: int) -> None:
        model = small(name)
        x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            logits, features = model(x), model.features(x)
            torch.testing.assert_close(model.head(features), logits)
        assert logits.shape == (2, 7)
        assert features.shape == (2, model.head.in_features)
        assert logits.std() > 0

    @pytest.mark.slow
    def test_grey_images_of_28_pixels_and_normalisation(self, name: str) -> None:
        model = load_model(SMALL[name].replace(":in_channels=3", ""), num_classes=7, in_channels=1, normalize="mnist")
        nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(1))
        x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            assert model(x).std() > 0
            torch.testing.assert_close(model(x), model.body((x - 0.1307) / 0.3081))
            torch.testing.assert_close(model.head(model.features(x)), model(x))

    def test_the_last_layer_is_found_and_takes_a_bias(self, name: str) -> None:
        model, bias = small(name), np.linspace(-1, 1, 7)
        x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        layer = find_last_layer(model, x)
        assert layer is not None
        assert model.get_submodule(layer.name) is model.head
        assert (layer.takes_bias, layer.takes_weight) == (True, True)
        made = changed(model, layer, Change(bias))
        assert made.state_dict().keys() == model.state_dict().keys()
        with torch.no_grad():
            torch.testing.assert_close(made(x), model(x) + torch.from_numpy(bias).float())

    def test_gradient_reaches_the_input_and_examples_are_independent(self, name: str) -> None:
        x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
        logits = small(name)(x)
        (gradient,) = torch.autograd.grad(logits[0, 0] - logits[0, 1], x)
        assert gradient[0].abs().sum() > 0
        assert gradient[1].abs().sum() == 0

    @pytest.mark.slow
    def test_seed_decides_the_weights_and_the_global_generator_is_left_alone(self, name: str) -> None:
        before = torch.get_rng_state()
        first = small(name).state_dict()
        same, other = (load_model(SMALL[name], num_classes=7, seed=seed) for seed in (0, 1))
        assert torch.equal(before, torch.get_rng_state())
        convolutions = [key for key, value in first.items() if value.ndim == 4]
        assert all(torch.equal(first[key], same.state_dict()[key]) for key in convolutions)
        assert not any(torch.equal(first[key], other.state_dict()[key]) for key in convolutions)


def test_smallcnn_starts_with_a_zero_head() -> None:
    head = load_model("smallcnn", num_classes=10).head
    assert not head.weight.any()
    assert not head.bias.any()


def test_wideresnet_starts_as_the_paper() -> None:
    weight = load_model("wideresnet-10-4", num_classes=10).block3.layer[0].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (9 * weight.shape[0])) ** 0.5, rel=0.02)


def test_wideresnet_shortcut_comes_from_the_activated_input() -> None:
    block = load_model("wideresnet-10-2", num_classes=10).block1.layer[0]
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 8, 8)
    torch.testing.assert_close(block(x), block.convShortcut(torch.relu(block.bn1(x))))


def test_resnet_stages_follow_the_written_blocks() -> None:
    model = load_model("resnet:width=8,blocks=1-2-1-1-1", num_classes=10)
    assert model.head.in_features == 8 * 2**4
    assert len(model.layer2) == 2
    assert load_model("resnet:width=4,blocks=1-1,block=bottleneck", num_classes=10).head.in_features == 4 * 2 * 4


def test_final_norm_is_the_only_difference_of_frls_network() -> None:
    with_norm = load_model("preact_resnet:width=4", num_classes=10).state_dict()
    without = load_model("preact_resnet:width=4,final_norm=false", num_classes=10).state_dict()
    assert {key.partition(".")[0] for key in with_norm.keys() - without.keys()} == {"bn"}
    assert without.keys() < with_norm.keys()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnett-18", "unknown model 'resnett'; did you mean 'resnet'"),
        ("resnet:widht=3", "unknown setting of resnet 'widht'; did you mean 'width'"),
        ("resnet-19", "resnet has depth 18, 34, 50, 101, 152; got 19"),
        ("resnet-18:blocks=1-1", "either depth or blocks"),
        ("resnet:blocks=1-0", "resnet.blocks must be at least 1 and at most 2000, got 0"),
        ("resnet:stem=cifra", "did you mean 'cifar'"),
        ("resnet:width=0", "resnet.width must be at least 1"),
        ("resnet-18-4", "resnet takes depth after its name"),
        ("lenet-5", "lenet takes no number after its name"),
        ("vgg-17", "vgg has depth 11, 13, 16, 19; got 17"),
        ("wideresnet-30-10", "6n\\+4 .* got 30. The nearest are 28 and 34"),
        ("resnet:normalize=cifar11", "unknown normalisation 'cifar11'; did you mean 'cifar10'"),
        ("resnet:mean=0.5", "needs both mean and std"),
    ],
)
def test_what_is_wrong_with_a_spec(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_model(spec, num_classes=10)


def test_number_of_classes_is_needed() -> None:
    with pytest.raises(UserError, match="lenet needs num_classes"):
        load_model("lenet")
    assert load_model("lenet:num_classes=4").head.out_features == 4
