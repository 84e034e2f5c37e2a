"""The bound of WAT's Theorem 3: exact robust errors, exact terms, and a classifier that is really trained."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from classwise.data.images import ArrayPixels, Images
from classwise.studies.fairness import linear_bound
from classwise.studies.fairness.linear_bound import Size, bound, fit, rademacher, robust_margins, worst_gaps
from classwise.studies.runner.work import Environment

EPS = 0.1


def images(x: torch.Tensor, y: list[int], names: tuple[str, ...] = ("cat", "dog", "ship")) -> Images:
    return Images(ArrayPixels(x.reshape(len(x), 1, 1, -1)), np.array(y), names)


def test_worst_gaps_are_those_of_the_worst_corner_of_the_ball() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x, y = (
        torch.randn(3, 4, generator=generator),
        torch.rand(5, 4, generator=generator),
        torch.tensor([0, 1, 2, 1, 0]),
    )
    corners = EPS * torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)))
    z = (x[:, None] + corners) @ weight.T
    brute = (z - z.gather(2, y[:, None, None].expand(-1, len(corners), 1))).amax(1)
    torch.testing.assert_close(worst_gaps(weight, x, y, EPS), brute)


def test_margins_are_positive_exactly_where_no_corner_breaks() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    x = torch.tensor([[0.6, 0.3], [0.5, 0.4], [0.2, 0.9]])
    found = robust_margins(weight, images(x, [0, 0, 1], ("cat", "dog")), EPS)
    np.testing.assert_allclose(found, [0.3 - 0.2, 0.1 - 0.2, 0.7 - 0.2], atol=1e-6)


@pytest.mark.parametrize("q", [2.0, math.inf])
def test_expected_norm_of_random_signs(q: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_bound, "_SIGNS", 4000)
    x = torch.rand(6, 5, generator=torch.Generator().manual_seed(1))
    y = [0, 0, 0, 1, 1, 1]
    exact = [
        np.mean(
            [
                np.linalg.norm(np.array(signs) @ x[place : place + 3].numpy(), q)
                for signs in itertools.product((-1, 1), repeat=3)
            ]
        )
        for place in (0, 3)
    ]
    assert rademacher(images(x, y), q, seed=0) == pytest.approx(max(exact), rel=0.03)


def test_terms_are_the_theorems() -> None:
    """Two classes of 50 images, W = 3, ε = 0.1, d = 16, p = q = 2, U = 7, γ = 0.5, δ = 0.05."""
    labels = np.repeat([0, 1], 50)
    margins = np.concatenate([np.full(40, 1.0), np.full(10, 0.4), np.full(45, 1.0), np.full(5, -1.0)])
    size = Size(norm=3, eps=0.1, pixels=16, q=2.0, spread=7)
    stated = bound(margins, labels, size, [0.5], stated=True)
    assert stated.error == pytest.approx(2 * 15 / 100)
    assert stated.complexity == pytest.approx(2 * 3 * 8 / (0.5 * 100) * 7)
    assert stated.radius == pytest.approx(2 * 3 * 0.1 * 4 * 4 / (0.5 * 10))
    assert stated.chance == pytest.approx(3 * math.sqrt(2 * math.log(40) / 200))
    tight = bound(margins, labels, size, [0.5], stated=False)
    assert tight.error == pytest.approx(10 / 50)
    assert tight.complexity == pytest.approx(2 * 3 * 2 / 0.5 * 7 / 50)
    assert tight.radius == pytest.approx(2 * 3 * 2 / 0.5 * 0.1 * math.sqrt(2) * 4 / math.sqrt(50))
    assert tight.chance == pytest.approx(3 * math.sqrt(math.log(80) / 100))
    assert tight.total == pytest.approx(tight.error + tight.complexity + tight.radius + tight.chance)


def test_the_best_gamma_is_taken_and_scaling_the_classifier_changes_nothing() -> None:
    labels, margins = np.repeat([0, 1], 50), np.linspace(0.1, 2, 100)
    size = Size(norm=1e-3, eps=0.1, pixels=16, q=math.inf, spread=1)
    found = [bound(margins, labels, size, gammas, True).total for gammas in ([0.05], [1.0], [0.05, 1.0])]
    assert found[2] == min(found[:2]) < max(found[:2])
    larger = Size(norm=1e-2, eps=0.1, pixels=16, q=math.inf, spread=1)
    assert bound(10 * margins, labels, larger, [10.0], True).total == pytest.approx(found[1])


def test_training_finds_a_robust_classifier_where_there_is_one() -> None:
    """Images that differ by more than 2ε in one pixel, whatever the others do."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 6, generator=generator)
    y = [n % 2 for n in range(200)]
    x[:, 0] = torch.tensor([0.9 if label else 0.1 for label in y])
    x[:, 1] = 1  # what a bias would be
    data = images(x, y, ("cat", "dog"))
    weight = fit(data, EPS, epochs=150, seed=0)
    assert (robust_margins(weight, data, EPS) > 0).all()
    torch.testing.assert_close(weight, fit(data, EPS, epochs=150, seed=0))


def test_errors_of_a_real_classifier_and_both_forms_are_written(tmp_path: Path) -> None:
    linear_bound.linear(tmp_path, Environment(), "digits", 0.15, epochs=2, seed=0)
    found, classes = pd.read_csv(tmp_path / "bound.csv"), pd.read_csv(tmp_path / "classes.csv")
    assert len(found) == 8
    assert classes[classes["split"] == "train"]["n"].nunique() == 1
    test = classes[classes["split"] == "test"]
    assert (found["measured"] == test["error"].max()).all()
    assert test["error"].mean() < 0.9  # it has learnt something
    assert ((found["measured_low"] <= found["measured"]) & (found["measured"] <= found["measured_high"])).all()
    stated = found[(found["form"] == "as stated") & (found["gamma_is"] == "median margin")]
    wrong = classes[classes["split"] == "train"]["wrong"].sum() / classes[classes["split"] == "train"]["n"].sum()
    assert (stated["error"] >= 10 * wrong).all()  # K times the average margin error
