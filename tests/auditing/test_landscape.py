"""Slices of the loss, against the closed form of a linear model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from classwise.auditing.landscape import landscape, slices
from classwise.core.errors import UserError
from classwise.core.threat import Threat
from classwise.data.images import ArrayPixels, Images

W = torch.tensor([1.0, -2.0, 3.0, 0.5]).reshape(1, 1, 2, 2)
X = torch.full((2, 1, 2, 2), 0.5)
Y = torch.tensor([0, 1])


def linear(x: Tensor) -> Tensor:
    """Two classes with logits ±s/2, s = ⟨w, x⟩: the loss of class 0 is log(1 + e^{-s})."""
    s = (W * x).flatten(1).sum(1)
    return torch.stack([s / 2, -s / 2], 1)


def softplus(s: float) -> float:
    return math.log1p(math.exp(s))


def test_along_the_gradient_it_is_the_closed_form() -> None:
    """For linf s changes by ∓ε‖w‖₁ = ∓0.65 along a, whatever the class."""
    table = slices(linear, X, Y, Threat("linf", 0.1), points=5)
    s = 1.25
    own = table[table["b"] == 0].set_index(["image", "a"])["loss"]
    for a in (-1.0, -0.5, 0.0, 0.5, 1.0):
        assert own[0, a] == pytest.approx(softplus(-s + 0.65 * a), rel=1e-5)
        assert own[1, a] == pytest.approx(softplus(s + 0.65 * a), rel=1e-5)


def test_has_every_point_of_every_image() -> None:
    table = slices(linear, X, Y, Threat("linf", 0.1), points=7, index=np.array([40, 7]))
    assert list(table.columns) == ["image", "label", "a", "b", "loss", "prediction"]
    assert table.groupby("image").size().to_dict() == {40: 49, 7: 49}
    assert table["a"].unique() == pytest.approx(np.linspace(-1, 1, 7))
    assert (table["b"] == 0).sum() == 14
    assert not table.duplicated(["image", "a", "b"]).any()
    assert table.groupby("image")["label"].first().to_dict() == {40: 0, 7: 1}


def test_predictions_are_those_at_the_point() -> None:
    """s = 1.25 falls below 0 where the gradient of class 0 takes it by more than 1.25: 0.4 · 6.5 · a > 1.25."""
    table = slices(linear, X, Y, Threat("linf", 0.4), points=5)
    own = table[(table["b"] == 0) & (table["image"] == 0)].sort_values("a")["prediction"]
    assert own.tolist() == [0, 0, 0, 1, 1]


def test_pixels_stay_in_their_range() -> None:
    seen = []

    def watched(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return linear(x)

    slices(watched, X, Y, Threat("linf", 0.9), points=5)
    points = torch.cat(seen)
    assert points.min() == 0
    assert points.max() == 1


def test_in_l2_the_random_direction_is_orthogonal_to_the_gradient() -> None:
    """So the loss of a linear model does not change along it, and by ε‖w‖₂ along the other."""
    table = slices(linear, X, Y, Threat("l2", 0.2), points=3)
    spread = table.groupby(["image", "a"])["loss"].agg(np.ptp)
    assert spread.max() < 1e-5
    at_end = table[(table["image"] == 0) & (table["a"] == 1)]["loss"].iloc[0]
    assert at_end == pytest.approx(softplus(-1.25 + 0.2 * float(W.norm())), rel=1e-5)


def test_each_image_has_its_own_direction() -> None:
    together = slices(linear, X, Y, Threat("linf", 0.2), points=3, index=np.array([5, 9]))
    alone = slices(linear, X[1:], Y[1:], Threat("linf", 0.2), points=3, index=np.array([9]))
    assert together[together["image"] == 9].reset_index(drop=True).equals(alone)
    other_seed = slices(linear, X[1:], Y[1:], Threat("linf", 0.2), points=3, seed=1, index=np.array([9]))
    middle = alone["b"] == 0
    assert other_seed[middle].equals(alone[middle])
    assert not other_seed["loss"].equals(alone["loss"])


def test_of_some_images_drawn_at_random() -> None:
    x = torch.rand(30, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images = Images(ArrayPixels(x), np.arange(30) % 2, ("up", "down"))
    table = landscape(linear, images, 4, Threat("linf", 0.1), points=3, seed=2)
    assert table["image"].nunique() == 4
    assert set(table["class"]) <= {"up", "down"}
    first = table[table["image"] == table["image"].iloc[0]]
    at = int(table["image"].iloc[0])
    centre = first[(first["a"] == 0) & (first["b"] == 0)]["loss"].iloc[0]
    loss = torch.nn.functional.cross_entropy(linear(x[[at]]), torch.tensor([at % 2]))
    assert centre == pytest.approx(float(loss), rel=1e-5)
    assert landscape(linear, images, 4, Threat("linf", 0.1), points=3, seed=2).equals(table)


def test_a_grid_needs_two_points() -> None:
    with pytest.raises(UserError, match="at least 2 points along each axis, got 1"):
        slices(linear, X, Y, Threat("linf", 0.1), points=1)
