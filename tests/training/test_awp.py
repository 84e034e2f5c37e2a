"""Weights pushed uphill, layer by layer, and put back bit by bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from classwise.core.errors import UserError
from classwise.training import awp
from classwise.training.awp import Awp

X = torch.linspace(-1, 1, 24).reshape(4, 6)
Y = torch.tensor([0, 1, 2, 1])


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def loss(model: nn.Module) -> Tensor:
    return cross_entropy(model(X.to(next(model.parameters()).dtype)), Y)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_step_computed_by_hand() -> None:
    """loss = w·x: the gradient is x = (3, 4), of length 5; ‖w‖ = 2; so v = γ · 2 · (.6, .8)."""
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 0.0]]))
    with Awp(gamma=0.5).perturbed(layer, lambda m: m(torch.tensor([[3.0, 4.0]])).sum()):
        torch.testing.assert_close(layer.weight.detach(), torch.tensor([[2.6, 0.8]]))
    assert layer.weight.tolist() == [[2.0, 0.0]]


def test_it_is_the_published_algorithm() -> None:
    """A copy takes one step of SGD on the negated loss; each layer's difference is given the layer's norm, times γ."""
    model, gamma = network().double(), 0.01  # the copy's small step drowns in float32's rounding
    proxy = copy.deepcopy(model)
    optimizer = torch.optim.SGD(proxy.parameters(), lr=0.01)
    (-loss(proxy)).backward()
    optimizer.step()
    expected = state(model)
    for name, moved in proxy.named_parameters():
        if moved.ndim > 1:
            difference = moved.detach() - expected[name]
            expected[name] += gamma * expected[name].norm() / difference.norm() * difference
    with Awp(gamma=gamma).perturbed(model, loss):
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-9, atol=1e-9)


def test_the_loss_is_higher_inside() -> None:
    model = network()
    before = loss(model).item()
    with Awp(gamma=0.05).perturbed(model, loss):
        assert loss(model).item() > before + 1e-3


def test_biases_and_norms_do_not_move_and_layers_move_by_gamma() -> None:
    model = network()
    before = state(model)
    with Awp(gamma=0.02).perturbed(model, loss):
        for name, parameter in model.named_parameters():
            distance = (parameter.detach() - before[name]).norm().item()
            assert distance == pytest.approx(0.02 * before[name].norm().item() if parameter.ndim > 1 else 0.0, rel=1e-3)


def test_everything_comes_back_bit_by_bit() -> None:
    """Weights after the block; running statistics already inside it, since the extra pass must not move them."""
    model = network().train()
    before = state(model)
    with Awp(gamma=0.3).perturbed(model, loss):
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_made_inside_are_those_of_the_pushed_weights() -> None:
    model = network()
    twin = copy.deepcopy(model)
    option = Awp(gamma=0.1)
    with option.perturbed(model, loss):
        pushed = copy.deepcopy(model)
        loss(model).backward()
    loss(pushed).backward()
    loss(twin).backward()
    for own, at_pushed, at_old in zip(model.parameters(), pushed.parameters(), twin.parameters(), strict=True):
        assert own.grad is not None
        assert at_pushed.grad is not None
        assert torch.equal(own.grad, at_pushed.grad)
        assert at_old.grad is not None
    assert not torch.equal(model[0].weight.grad, twin[0].weight.grad)  # type: ignore[arg-type]


def test_weights_come_back_when_the_step_fails() -> None:
    model = network()
    before = state(model)
    with pytest.raises(KeyError), Awp(gamma=0.3).perturbed(model, loss):
        raise KeyError
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_it_waits_for_its_start() -> None:
    model = network()
    before = state(model)

    def unwanted(_: nn.Module) -> Tensor:
        raise AssertionError("no pass is made before the start")

    with Awp(start=3).perturbed(model, unwanted, epoch=2.99):
        assert torch.equal(model[0].weight, before["0.weight"])  # type: ignore[arg-type]
    with Awp(start=3).perturbed(model, loss, epoch=3.0):
        assert not torch.equal(model[0].weight, before["0.weight"])  # type: ignore[arg-type]


def test_a_layer_without_gradient_stays() -> None:
    model = nn.ModuleDict({"used": nn.Linear(6, 3), "idle": nn.Linear(6, 3)})
    flat = nn.Linear(6, 3)
    used = model["used"]
    before = state(model)
    with Awp().perturbed(model, lambda m: cross_entropy(used(X), Y)):
        assert torch.equal(model["idle"].weight, before["idle.weight"])
        assert not torch.equal(used.weight, before["used.weight"])
    with Awp().perturbed(flat, lambda m: 0 * m(X).sum()):
        assert flat.weight.isfinite().all()


def test_processes_that_share_a_batch_move_alike() -> None:
    """Two halves with averaged gradients make the whole batch's step."""
    model = nn.Linear(6, 3)
    halves = [torch.autograd.grad(cross_entropy(model(X[part]), Y[part]), model.weight)[0] for part in ([0, 1], [2, 3])]
    with Awp(gamma=0.1).perturbed(model, lambda m: cross_entropy(m(X), Y)):
        whole = model.weight.detach().clone()
    option, half = Awp(gamma=0.1), [0, 1]
    with option.perturbed(model, lambda m: cross_entropy(m(X[half]), Y[half]), average=lambda g: (g + halves[1]) / 2):
        torch.testing.assert_close(model.weight.detach(), whole)


def test_mixed_precision_sees_the_pushed_weights() -> None:
    """Autocast keeps half-precision copies of the weights, which the push and the return must make stale."""
    model = nn.Linear(6, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        before = model(X)
        with Awp(gamma=0.5).perturbed(model, lambda m: cross_entropy(m(X).float(), Y)):
            assert not torch.equal(model(X), before)
        assert torch.equal(model(X), before)


def test_specs() -> None:
    assert awp.parse("awp:gamma=0.005,start=10") == Awp(gamma=0.005, start=10)
    assert awp.parse("awp-0.005") == Awp(gamma=0.005)
    for wanted, message in (
        ("apw", "did you mean 'awp'"),
        ("awp:gamma=-1", "must be at least 0, got -1"),
        ("awp:start=-1", "must be at least 0, got -1"),
        ("awp:gama=1", "did you mean 'gamma'"),
    ):
        with pytest.raises(UserError, match=message):
            awp.parse(wanted)
