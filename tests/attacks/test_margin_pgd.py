"""PGD on the margin: the published loss, and the published way of going flat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from classwise import attacks
from classwise.attacks.attack import Model
from classwise.attacks.margin_pgd import MarginPgd
from classwise.core.threat import Threat

Linear = Callable[..., Model]

THREE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
ZERO = torch.tensor([0])


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_the_loss_is_the_published_one(scale: float) -> None:
    rng = np.random.default_rng(0)
    z, y = scale * rng.standard_normal((60, 6)), rng.integers(6, size=60)
    own = z[np.arange(60), y]
    others = np.where(np.eye(6, dtype=bool)[y], -np.inf, z).max(1)
    published = -np.maximum(own - others + 50, 0)
    assert np.allclose(MarginPgd().loss(torch.from_numpy(z), torch.from_numpy(y)).numpy(), published)
    assert (published == 0).any() == (scale > 1)


def test_only_the_strongest_rival_is_followed(linear: Linear) -> None:
    """Class 1 leads class 2, so the gradient is (1, 0): cross entropy would move both pixels."""
    x, model = torch.full((1, 2), 0.5), linear(THREE, [0.0, 0.2, 0.0])
    margin = attacks.craft(MarginPgd(steps=1, step=0.05, start="none"), model, x, ZERO, Threat("linf", 0.1))
    assert torch.allclose(margin, torch.tensor([[0.55, 0.5]]))
    plain = attacks.craft(attacks.parse("pgd:steps=1,step=0.05,start=none")["pgd"], model, x, ZERO, Threat("linf", 0.1))
    assert torch.allclose(plain, torch.tensor([[0.55, 0.55]]))


def test_the_loss_is_flat_beyond_the_confidence(linear: Linear) -> None:
    x, model = torch.full((1, 2), 0.5), linear(THREE, [0.0, 2.0, 0.0])  # broken by a margin of 2.5
    for confidence, moves in ((2.0, False), (3.0, True)):
        attack = MarginPgd(steps=1, start="none", confidence=confidence)
        assert torch.equal(attacks.craft(attack, model, x, ZERO, Threat("linf", 0.1)), x) != moves


def test_a_target_is_pursued_from_any_distance_and_left_once_it_leads(linear: Linear) -> None:
    x = torch.full((1, 2), 0.5)
    attack = MarginPgd(steps=1, step=0.05, start="none", target=2)
    far = attacks.craft(attack, linear(THREE, [0.0, 300.0, 0.0]), x, ZERO, Threat("linf", 0.1))
    assert torch.allclose(far, torch.tensor([[0.45, 0.55]]))
    reached = attacks.craft(attack, linear(THREE, [0.0, 0.0, 51.0]), x, ZERO, Threat("linf", 0.1))
    assert torch.equal(reached, x)


def test_it_takes_thirty_steps_as_published() -> None:
    assert list(attacks.parse("margin-pgd")) == ["margin_pgd-30"]
    assert MarginPgd().confidence == 50
