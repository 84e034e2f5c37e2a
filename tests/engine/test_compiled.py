"""Compiled passes: the same records, a graph for each of a few batch sizes, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.attacks.attack import Attack
from classwise.auditing import prepare
from classwise.core.errors import UserError
from classwise.engine import attack_copy
from classwise.engine.attack_copy import AttackCopy, accelerate, compiled

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)
        ).eval()


def data(count: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 1, 8, 8, generator=generator)
    with torch.no_grad():
        return x, net()(x).argmax(1)


def counting(seen: list[tuple[int, ...]]) -> Callable[[Any, list[Any]], Any]:
    """A backend of torch.compile that runs a graph as it is, and notes the shape it was made for."""

    def backend(graph: Any, inputs: list[Any]) -> Any:
        seen.extend(
            tuple(value.shape) for value in inputs if isinstance(value, Tensor) and value.shape[1:] == (1, 8, 8)
        )
        return graph.forward

    return backend


@pytest.mark.parametrize("attack", ["pgd-5", "apgd_ce:iterations=8", "square:queries=40"])
def test_an_audit_has_the_same_records_from_at_most_four_batch_sizes(
    monkeypatch: pytest.MonkeyPatch, attack: str | Attack
) -> None:
    torch.compiler.reset()
    shapes: list[tuple[int, ...]] = []

    def noted(copy: AttackCopy, device: torch.device) -> AttackCopy:
        return attack_copy.compiled(copy, device, counting(shapes))

    monkeypatch.setattr(prepare, "compiled", noted)
    plain, fast = (cw.audit(net(), data(), attack, 0.1, batch_size=16, compile=how) for how in (False, True))
    assert (plain.rows().prediction == fast.rows().prediction).all()
    assert 0 < len(set(shapes)) <= 4
    assert len(shapes) <= 8  # with gradients and without, which is as many graphs as torch keeps


def test_gradients_and_logits_are_those_of_the_model() -> None:
    torch.compiler.reset()
    x = data(8)[0]
    found = []
    for model in (net(), compiled(accelerate(net(), x[:1]), CPU, "aot_eager")):
        given = x.clone().requires_grad_()
        z = model(given)
        found.append((z.detach(), torch.autograd.grad(z.square().sum(), given)[0]))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1][1], found[0][1], atol=1e-5, rtol=1e-4)


def test_a_compiler_that_fails_is_reported_with_the_remedy() -> None:
    def broken(graph: Any, inputs: list[Any]) -> Any:
        raise OSError("no C++ compiler")

    torch.compiler.reset()
    copy = compiled(accelerate(net(), data(1)[0]), CPU, broken)
    with pytest.raises(UserError, match=r"no C\+\+ compiler.*leave --compile out"):
        copy(data(4)[0])


def test_what_cannot_be_compiled_is_said() -> None:
    with pytest.raises(UserError, match="cannot be compiled"):
        compiled(AttackCopy(model=lambda x: x.flatten(1)), CPU)
