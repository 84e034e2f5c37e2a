"""The cosine head: cosines, unit rows that no gradient passes through, and a place in every built-in network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.engine.attack_copy import accelerate
from classwise.models import load_model, save_checkpoint, usage
from classwise.models.networks.cosine import CosineHead

NETWORKS = {  # where the last layer sits: in the network, in a Sequential, behind `features` that is a module itself
    "resnet:width=4,blocks=1-1": "linear",
    "smallcnn:in_channels=3": "classifier.fc3",
    "vgg-11:width=4": "classifier",
    "wideresnet-10-1": "fc",
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def images(count: int = 4) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def head_of(weight: Tensor) -> CosineHead:
    head = CosineHead(weight.shape[1], weight.shape[0])
    head.weight.data.copy_(weight)
    return head


def test_outputs_are_cosines_computed_by_hand() -> None:
    head = head_of(torch.tensor([[3.0, 4.0], [0.0, -2.0], [1.0, 1.0]])).eval()
    z = head(torch.tensor([[10.0, 0.0], [0.0, 0.5]]))
    torch.testing.assert_close(z, torch.tensor([[0.6, 0.0, 0.5**0.5], [0.8, -1.0, 0.5**0.5]]))


def test_train_mode_overwrites_the_weight_and_eval_mode_leaves_it() -> None:
    weight, f = normal(5, 8), normal(3, 8, seed=1)
    head = head_of(weight)
    evaluated = head.eval()(f)
    assert torch.equal(head.weight, weight)
    trained = head.train()(f)
    assert torch.equal(trained, evaluated)
    torch.testing.assert_close(head.weight.detach(), weight / weight.norm(dim=1, keepdim=True))


def test_gradient_of_the_weight_does_not_pass_through_its_normalisation() -> None:
    head, f, y = head_of(normal(5, 8)).train(), normal(6, 8, seed=1), torch.arange(6) % 5
    z = head(f)
    F.cross_entropy(7 * z, y).backward()
    dz = 7 * ((7 * z).softmax(1) - F.one_hot(y, 5)).detach() / 6
    expected = dz.T @ (f / f.norm(dim=1, keepdim=True))
    assert head.weight.grad is not None
    torch.testing.assert_close(head.weight.grad, expected)
    assert (head.weight.grad * head.weight).sum(1).abs().min() > 1e-4  # through it, it would be orthogonal to each row


def test_a_step_leaves_the_sphere_and_the_next_pass_returns_to_it() -> None:
    head, f = head_of(normal(5, 8)).train(), normal(6, 8, seed=1)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0, momentum=0.9, weight_decay=0.1)
    (head(f) - head(f.flip(0)) * 0.5).square().sum().backward()  # two passes before one gradient, as in TRADES
    optimizer.step()
    stepped = head.weight.detach().clone()
    assert (stepped.norm(dim=1) - 1).abs().min() > 1e-3
    head(f)
    torch.testing.assert_close(head.weight.detach(), F.normalize(stepped))


def test_zero_features_give_zero() -> None:
    assert not head_of(normal(5, 8))(torch.zeros(1, 8)).any()


@pytest.mark.parametrize("normalize", [None, "cifar10"])
@pytest.mark.parametrize(("spec", "place"), NETWORKS.items())
class TestNetworks:
    def test_head_features_and_names(self, spec: str, place: str, normalize: str | None) -> None:
        separator = "," if "=" in spec else ":"
        model = load_model(f"{spec}{separator}head=cosine", num_classes=7, normalize=normalize)
        plain = load_model(spec, num_classes=7, normalize=normalize)
        assert isinstance(model.head, CosineHead)
        assert plain.state_dict().keys() - model.state_dict().keys() == {f"{'body.' if normalize else ''}{place}.bias"}
        assert model.state_dict().keys() <= plain.state_dict().keys()
        with torch.no_grad():
            z, f = model(images()), model.features(images())
            torch.testing.assert_close(model.head(f), z)
            torch.testing.assert_close(z, F.cosine_similarity(f[:, None], model.head.weight[None], dim=2))
            torch.testing.assert_close(f, plain.features(images()))  # the same seed draws the same body
        assert z.std() > 0  # smallcnn's linear head starts at zero, a cosine head cannot

    def test_it_is_folded_like_any_network(self, spec: str, place: str, normalize: str | None) -> None:
        separator = "," if "=" in spec else ":"
        model = load_model(f"{spec}{separator}head=cosine", num_classes=7, normalize=normalize)
        before = model.head.weight.detach().clone()
        fast = accelerate(model, images())
        assert not fast.notes
        assert fast.folded or not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        torch.testing.assert_close(fast(images()), model(images()).detach(), atol=1e-5, rtol=1e-4)
        assert torch.equal(before, model.head.weight)


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    spec = "resnet:width=4,blocks=1-1,head=cosine"
    model = load_model(spec, num_classes=7, normalize="cifar10", seed=3)
    model.train()(images())
    path = tmp_path / "model.pt"
    save_checkpoint(path, model, spec, num_classes=7, in_channels=3)
    again = load_model(path)
    assert isinstance(again.head, CosineHead)
    with torch.no_grad():
        assert torch.equal(again(images()), model.eval()(images()))


def test_linear_is_the_default_and_what_is_wrong_is_said() -> None:
    assert type(load_model("lenet:head=linear", num_classes=3).head) is nn.Linear
    assert usage("lenet").endswith("head=linear")
    with pytest.raises(UserError, match=r"unknown value of lenet\.head 'cosin'; did you mean 'cosine'"):
        load_model("lenet:head=cosin", num_classes=3)
    with pytest.raises(UserError, match="unknown setting of lenet 'haed'; did you mean 'head'"):
        load_model("lenet:haed=cosine", num_classes=3)
