"""Rows: what an attack starts from, how rows part and meet, gradients, and the choice among restarts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from classwise import attacks
from classwise.attacks.attack import Model, OneShot, Rows, initial_rows, join, select, value_and_gradient
from classwise.attacks.transfer import Transfer
from classwise.core.errors import UserError
from classwise.core.threat import Ball, Threat

Linear = Callable[..., Model]


@dataclass(frozen=True)
class Scripted(OneShot):
    """An attack whose restarts end at given points."""

    ends: Iterator[Tensor]
    restarts: int = 1

    def points(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        return next(self.ends)


def test_the_restart_kept_is_a_broken_one_and_among_those_the_worst() -> None:
    """The model is the identity: the points are logits, and all labels are 0."""
    ends = torch.tensor(
        [  # never broken: least sure   once broken         thrice: largest loss  broken wins over a larger loss
            [[3.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.9, 0.9]],
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 1.01, -9.0]],
            [[2.0, 0.0, 0.0], [1.0, 0.9, 0.9], [0.0, 2.0, 0.0], [1.0, 0.95, 0.95]],
        ]
    )
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        attack = Scripted(iter(ends[order]), restarts=3)
        kept = attacks.craft(
            attack,
            lambda x: x,
            torch.zeros(4, 3),
            torch.zeros(4, dtype=torch.int64),
            Threat("linf", 1.0),
        )
        assert torch.equal(kept, ends[1])


def test_fresh_rows() -> None:
    x, y, key = torch.zeros(2, 3, dtype=torch.float64), torch.tensor([1, 0]), torch.tensor([5, 6])
    rows = initial_rows(x, y, 8 / 255, key)
    assert rows["eps"].tolist() == [8 / 255, 8 / 255]  # in the images' own precision
    assert rows["t"].tolist() == [0, 0]
    assert initial_rows(x, y, torch.tensor(0.5), key)["eps"].tolist() == [0.5, 0.5]
    assert initial_rows(x, y, torch.tensor([0.5, 0.25]), key)["eps"].tolist() == [0.5, 0.25]


def test_select_and_join_by_hand() -> None:
    rows = {"a": torch.tensor([1, 2, 3]), "b": torch.tensor([[1.0], [2.0], [3.0]])}
    even = select(rows, torch.tensor([False, True, False]))
    odd = select(rows, torch.tensor([True, False, True]))
    assert even["b"].tolist() == [[2.0]]
    assert join([odd, even])["a"].tolist() == [1, 3, 2]
    assert set(join([odd, {"a": torch.tensor([9])}])) == {"a"}


def test_gradients_and_logits_are_averaged_over_draws() -> None:
    weights = iter([torch.tensor([3.0, 0.0]), torch.tensor([-1.0, 1.0]), torch.tensor([1.0, 5.0])])

    def model(x: Tensor) -> Tensor:
        return (x @ next(weights))[:, None]

    logits, gradient = value_and_gradient(model, torch.tensor([[1.0, 2.0], [0.0, 1.0]]), lambda z: z[:, 0], eot=3)
    assert torch.allclose(gradient, torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
    assert torch.allclose(logits, torch.tensor([[(3 + 1 + 11) / 3], [(0 + 1 + 5) / 3]]))


def test_the_gradient_is_found_under_no_grad_and_leaves_no_trace() -> None:
    x = torch.tensor([[1.0, 2.0]])
    with torch.no_grad():
        logits, gradient = value_and_gradient(lambda point: point**2, x, lambda z: z.sum(1))
    assert gradient.tolist() == [[2.0, 4.0]]
    assert not any(tensor.requires_grad for tensor in (x, logits, gradient))


def test_a_model_without_a_gradient_is_named() -> None:
    with pytest.raises(UserError, match=r"no gradient with respect to its input.*noise"):
        value_and_gradient(lambda point: point.detach(), torch.ones(1, 2), lambda z: z.sum(1))


def test_crafted_images_carry_no_graph(linear: Linear) -> None:
    x = torch.full((1, 1, 1, 2), 0.5, requires_grad=True)
    flat = linear([[1.0, 0.0], [0.0, 1.0]])

    def net(x: Tensor) -> Tensor:
        return flat(x.flatten(1))

    for name in attacks.names():
        (attack,) = attacks.parse(name, iterations=5, queries=5, rounds=5, population=4).values()
        attack = dataclasses.replace(attack, surrogates=[net]) if isinstance(attack, Transfer) else attack
        crafted = attacks.craft(attack, net, x, torch.tensor([0]), Threat("linf", 0.1))
        assert not crafted.requires_grad
    assert x.grad is None
