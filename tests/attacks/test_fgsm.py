"""FGSM: one step of the whole radius."""

from __future__ import annotations

from collections.abc import Callable

import torch

from classwise import attacks
from classwise.attacks.attack import Model, Rows
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.pgd import Pgd
from classwise.core.threat import Threat

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

TWO = [[1.0, -2.0], [0.0, 0.0]]


def test_one_step_of_each_radius_from_the_image(linear: Linear) -> None:
    x, eps = torch.tensor([[0.5, 0.5], [0.05, 0.5]]), torch.tensor([0.1, 0.2])
    moved = attacks.craft(Fgsm(), linear(TWO), x, torch.tensor([0, 0]), Threat(), eps=eps)
    assert torch.allclose(moved, torch.tensor([[0.4, 0.6], [0.0, 0.7]]))


def test_l2_moves_along_the_gradient(linear: Linear) -> None:
    moved = attacks.craft(
        Fgsm(),
        linear([[3.0, -4.0], [0.0, 0.0]]),
        torch.full((1, 2), 0.5),
        torch.tensor([0]),
        Threat("l2", 0.1),
    )
    assert torch.allclose(moved, torch.tensor([[0.44, 0.58]]))


def test_the_randomised_form_is_pgd_of_one_whole_step(linear: Linear, iterates: Iterates) -> None:
    x, y = torch.full((5, 2), 0.5), torch.zeros(5, dtype=torch.int64)
    fgsm = iterates(Fgsm(start="uniform"), linear(TWO), x, y, 0.1)
    pgd = iterates(Pgd(steps=1, step=0.1), linear(TWO), x, y, 0.1)
    assert not torch.equal(fgsm[0]["x_adv"], x)
    for one, other in zip(fgsm, pgd, strict=True):
        assert torch.equal(one["x_adv"], other["x_adv"])
