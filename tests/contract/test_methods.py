"""What every training method must do, whichever it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise import methods
from classwise.core import rng
from classwise.core.threat import LINF
from classwise.engine.attack_copy import follow
from classwise.methods import Batch, Method
from classwise.training.teachers import Teacher
from for_each import for_each

NAMES = ("ant", "bee", "cat")
EPS = 0.1
COSINES = {"he", "he_lis", "he_cmp"}
every_method = pytest.mark.parametrize("name", methods.names())


def make(name: str) -> Method:
    options = {"first_p": 0.4} if name == "he_cmp" else {}  # of three classes one has a third at least
    return methods.parse(name, options)


def network(name: str, seed: int = 1) -> nn.Module:
    head = ",head=cosine" if name in COSINES else ""
    model = cw.load_model(f"resnet:width=4,blocks=1{head}", num_classes=len(NAMES), in_channels=1, seed=seed)
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = 0.3 * torch.randn(module.num_features, generator=generator)
            module.running_var = 0.5 + torch.rand(module.num_features, generator=generator)
    return model


def batch_for(model: nn.Module, count: int = 6, **changes: object) -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 1, 6, 6, generator=generator)
    y = torch.arange(count) % len(NAMES)
    key = rng.keys(0, torch.arange(count))
    synced_copy = follow(model.eval(), x[:2])
    synced_copy.refresh()
    batch = Batch(
        x=x,
        y=y,
        key=key,
        eps=torch.full((count,), EPS),
        fast=synced_copy.attack_copy,
        epoch=0.5,
        epochs=4,
        teacher=Teacher(network("teacher", seed=2).eval()),
        teacher_clean=Teacher(network("teacher", seed=3).eval()),
    )
    return dataclasses.replace(batch, **changes)  # type: ignore[arg-type]


def attacked(method: Method, model: nn.Module, batch: Batch, state: methods.State) -> Batch:
    return dataclasses.replace(batch, x_adv=method.attack(model.train(), batch, state))


@every_method
def test_it_describes_itself(name: str) -> None:
    assert methods.describe(name).endswith((".", ":")) or len(methods.describe(name)) > 20
    assert "weight=" in methods.usage(name)


@every_method
def test_class_vectors_are_in_the_state_one_value_per_class_or_pair_of_classes(name: str) -> None:
    state, classes = make(name).init(NAMES), len(NAMES)
    assert all(state[vector].shape == (classes,) for vector in ("weight", "margin", "temperature"))
    assert all(values.shape in ((classes,), (), (classes, classes)) for values in state.values())


@every_method
def test_what_it_trains_on_is_in_the_ball_and_leaves_the_model_alone(name: str) -> None:
    method, model = make(name), network(name)
    batch, state = batch_for(model), make(name).init(NAMES)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x_adv = method.attack(model.train(), batch, state)
    assert x_adv.shape == batch.x.shape
    assert (LINF.norm(x_adv - batch.x) <= EPS + 1e-6).all()
    assert 0 <= x_adv.min() <= x_adv.max() <= 1
    assert all(parameter.grad is None for parameter in model.parameters())
    if getattr(method, "mode", "eval") == "eval":
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.slow
@every_method
def test_a_class_margin_scales_the_radius_of_that_class(name: str) -> None:
    if name == "standard":
        pytest.skip("attacks nothing")
    method = dataclasses.replace(make(name), margin={"cat": 0.25})
    model = network(name)
    batch = batch_for(model, 12)
    moved = LINF.norm(method.attack(model.train(), batch, method.init(NAMES)) - batch.x)
    cat = batch.y == 2
    assert (moved[cat] <= 0.25 * EPS + 1e-6).all()
    assert moved[~cat].amax() > 0.25 * EPS + 1e-3


@every_method
def test_losses_are_per_example_finite_and_move_every_parameter(name: str) -> None:
    method, model = make(name), network(name)
    state = method.init(NAMES)
    batch = attacked(method, model, batch_for(model), state)
    loss = method.loss(model.train(), batch, state)
    assert loss.value.shape == (len(batch.y),)
    assert loss.logits.shape == (len(batch.y), len(NAMES))
    assert torch.isfinite(loss.value).all()
    loss.value.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.slow
@every_method
def test_uniform_class_vectors_change_nothing(name: str) -> None:
    plain, spelled = (
        make(name),
        dataclasses.replace(make(name), weight=(1.0,) * 3, margin=(1.0,) * 3, temperature={"*": 1}),
    )
    if hasattr(plain, "beta") and isinstance(plain.beta, float):
        spelled = dataclasses.replace(spelled, beta=(plain.beta,) * 3)  # type: ignore[call-arg]
    values = []
    for method in (plain, spelled):
        model, state = network(name), method.init(NAMES)  # an attack in train mode moves batch-norm's statistics
        batch = attacked(method, model, batch_for(model), state)
        values.append(method.loss(model.eval(), batch, state).value)
    assert torch.equal(values[0], values[1])


@pytest.mark.slow
@every_method
def test_a_class_weight_multiplies_the_losses_of_that_class(name: str) -> None:
    if name.startswith("frl"):
        pytest.skip("normalises its weights over the batch")
    model = network(name)
    one, three = make(name), dataclasses.replace(make(name), weight={"bee": 3.0})
    batch = attacked(one, model, batch_for(model), one.init(NAMES))
    a, b = (method.loss(model.eval(), batch, method.init(NAMES)).value for method in (one, three))
    factor = torch.where(batch.y == 1, 3.0, 1.0)
    assert torch.allclose(b, a * factor, rtol=1e-5)


@pytest.mark.slow
@every_method
def test_an_example_is_treated_alike_in_any_batch(name: str) -> None:
    """What makes sharding over processes exact: in eval mode, and where no sum over the batch is taken."""
    method, model = make(name), network(name).eval()
    if getattr(method, "mode", "eval") == "train" or method.batch_wise:
        pytest.skip("looks at the whole batch")
    state = method.init(NAMES)
    whole = batch_for(model)
    part = dataclasses.replace(whole, x=whole.x[2:5], y=whole.y[2:5], key=whole.key[2:5], eps=whole.eps[2:5])

    def losses(batch: Batch) -> Tensor:
        batch = dataclasses.replace(batch, x_adv=method.attack(model, batch, state))
        return method.loss(model.eval(), batch, state).value.detach()

    assert torch.allclose(losses(whole)[2:5], losses(part), atol=1e-5)


@pytest.mark.slow
@every_method
def test_global_random_state_is_left_alone(name: str) -> None:
    method, model = make(name), network(name)
    state = method.init(NAMES)
    torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    method.loss(model.train(), attacked(method, model, batch_for(model), state), state)
    assert torch.equal(torch.random.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@every_method
@for_each("field", ["weight", "margin", "temperature"])
def test_bad_class_vectors_are_refused(name: str, field: str) -> None:
    change: Callable[[object], Method] = lambda value: dataclasses.replace(make(name), **{field: value})  # noqa: E731
    with pytest.raises(cw.UserError, match=f"{field} has 2 values, but there are 3 classes"):
        change((1.0, 2.0)).init(NAMES)
    with pytest.raises(cw.UserError, match=r"unknown class in .*'kat'; did you mean 'cat'"):
        change({"kat": 1.0}).init(NAMES)
