"""FAB and FAB-T: iterations followed by hand, the class gone for, starts, and the distances an audit records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import classwise
from classwise import attacks
from classwise.attacks.attack import Attack, Model, Rows, initial_rows
from classwise.attacks.fab import Fab, difference
from classwise.attacks.fab_t import FabT
from classwise.attacks.hyperplane import nearest_step
from classwise.core.errors import UserError
from classwise.core.threat import LINF, Norm, Threat, ball_of

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]
FloatArray = npt.NDArray[np.float32]

HALF = torch.full((1, 2), 0.5)
ZERO = torch.tensor([0])
TWO = [[0.0, 0.0], [1.0, 2.0]]  # with bias −1.8, f = x_0 + 2 x_1 − 1.8 is −0.3 at HALF: 0.1 away in linf
THREE = [[0.0, 0.0], [1.0, 1.0], [1.6, 0.0]]  # with f = −0.3 each: 0.15 and 0.1875 away in linf, 0.212 and 0.1875 in l2

both = pytest.mark.parametrize("attack", [Fab(iterations=12), FabT(iterations=12)], ids=["fab", "fab_t"])
every_norm = pytest.mark.parametrize("norm", ["linf", "l2"])


@both
def test_two_iterations_by_hand(attack: Attack, linear: Linear, iterates: Iterates) -> None:
    seen = iterates(attack, linear(TWO, [0.0, -1.8]), HALF, ZERO, 0.05)
    assert torch.equal(seen[0]["x_adv"], HALF)
    assert seen[0]["best"].tolist() == [float("inf")]
    # The plane is 0.1 away; 1.05 of that is misclassified; nine tenths of it are left.
    assert seen[1]["best"].item() == pytest.approx(0.105)
    assert torch.allclose(seen[1]["x_best"], HALF + 0.105)
    assert torch.allclose(seen[1]["x_adv"], HALF + 0.0945)
    # From there the plane is 0.0055 away, from x 0.1: α = 55/1055.
    alpha = 0.0055 / 0.1055
    point = (1 - alpha) * (0.0945 + 1.05 * 0.0055) + alpha * 0.105
    assert seen[2]["best"].item() == pytest.approx(point)
    assert torch.allclose(seen[2]["x_adv"], HALF + 0.9 * point)


def test_the_way_back_to_x_is_bounded(linear: Linear, iterates: Iterates) -> None:
    for alpha_max, alpha in ((0.01, 0.01), (1.0, 0.0055 / 0.1055)):
        seen = iterates(Fab(iterations=2, alpha_max=alpha_max), linear(TWO, [0.0, -1.8]), HALF, ZERO, 0.05)
        point = (1 - alpha) * (0.0945 + 1.05 * 0.0055) + alpha * 0.105
        assert seen[2]["best"].item() == pytest.approx(point, rel=1e-6)


@both
@pytest.mark.parametrize(("norm", "distance"), [("linf", 0.1), ("l2", 0.3 / 5**0.5)])
def test_a_linear_models_boundary_is_found(
    attack: Attack, norm: Norm, distance: float, linear: Linear, iterates: Iterates
) -> None:
    best = iterates(attack, linear(TWO, [0.0, -1.8]), HALF, ZERO, 0.05, norm)[-1]["best"].item()
    assert distance < best < 1.01 * distance


def test_the_nearest_plane_depends_on_the_norm(linear: Linear) -> None:
    model = linear(THREE, [0.0, -1.3, -1.1])
    rows = initial_rows(HALF, ZERO, 0.05, ZERO)
    for norm, gradient in (("linf", [1.0, 1.0]), ("l2", [1.6, 0.0])):
        plane = Fab().linearise(model, {**rows, "x_adv": HALF}, ball_of(norm))  # type: ignore[arg-type]
        assert torch.allclose(plane.gradient, torch.tensor([gradient]))
        assert plane.value.item() == pytest.approx(-0.3)


def test_every_label_has_its_own_planes(linear: Linear) -> None:
    model = linear(THREE, [0.0, -1.3, -1.1])
    y = torch.tensor([0, 1, 2])
    rows = initial_rows(HALF.expand(3, 2), y, 0.05, y)
    plane = Fab().linearise(model, {**rows, "x_adv": rows["x"]}, LINF)
    # From class 1 (f_0 = 0.3 and f_2 = 0) and from class 2 (f_0 = 0.3 and f_1 = 0) the other of the two ties.
    assert torch.allclose(plane.gradient, torch.tensor([[1.0, 1.0], [0.6, -1.0], [-0.6, 1.0]]))
    assert torch.allclose(plane.value, torch.tensor([-0.3, 0.0, 0.0]), atol=1e-6)


def test_targets_are_the_wrong_classes_by_rank(linear: Linear) -> None:
    """Rows of one batch are at different restarts; with label 1 the ranks are of the other classes."""
    model = linear(THREE, [0.0, -1.3, -1.2])  # logits 0, −0.3, −0.4
    attack = FabT(targets=2, per_target=2)
    assert attack.restarts == 4
    y = torch.tensor([0, 0, 0, 0, 1, 1])
    rows = initial_rows(HALF.expand(6, 2), y, 0.1, y, torch.tensor([0, 1, 2, 3, 0, 1]))
    begun = attack.begin(model, rows, LINF)
    assert begun["target"].tolist() == [1, 2, 1, 2, 0, 2]
    moved = (LINF.norm(begun["x_adv"] - begun["x"]) > 0).tolist()
    assert moved == [False, False, True, True, False, False]
    advanced = attack.advance(model, begun, LINF)
    # Towards class 2 only the first pixel moves, by 1.05 · 0.4/1.6 and then nine tenths of it.
    assert torch.allclose(advanced["x_adv"][1], torch.tensor([0.5 + 0.9 * 1.05 * 0.25, 0.5]))


def test_a_third_class_on_the_way_counts(linear: Linear, iterates: Iterates) -> None:
    """Going for class 2 the point is taken for class 1, which rises faster: broken all the same."""
    model = linear([[0.0], [3.0], [1.0]], [0.0, -1.8, -0.6])
    last = iterates(FabT(iterations=1, targets=2), model, HALF[:, :1], ZERO, 0.1)[-1]
    assert last["target"].tolist() == [2]
    assert last["best"].item() == pytest.approx(0.105)
    assert model(last["x_best"]).argmax(1).tolist() == [1]


def test_targets_fit_the_number_of_classes(linear: Linear) -> None:
    assert FabT().restarts == 9
    assert FabT(per_target=2).for_classes(4) == FabT(targets=3, per_target=2)
    assert FabT(targets=3).for_classes(100) == FabT(targets=3)
    assert FabT().for_classes(2).restarts == 1
    point = attacks.craft(FabT(iterations=3), linear(TWO, [0.0, -1.8]), HALF, ZERO, Threat("linf", 0.2))  # not fitted
    assert LINF.norm(point - HALF).item() == pytest.approx(0.1, rel=0.01)


@every_norm
def test_later_restarts_begin_half_a_radius_away(norm: Norm, linear: Linear) -> None:
    x = torch.full((4, 3, 5, 5), 0.5)
    eps, y = torch.tensor([0.2, 0.2, 0.1, 0.0]), torch.zeros(4, dtype=torch.int64)
    model = linear([[0.0] * 75, [1.0] * 75])

    def begun(key: int) -> Tensor:
        rows = initial_rows(x, y, eps, torch.arange(4) + key, torch.tensor([0, 1, 3, 1]))
        return Fab(restarts=4).begin(model, rows, ball_of(norm))["x_adv"]

    assert torch.allclose(ball_of(norm).norm(begun(0) - x), torch.tensor([0.0, 0.1, 0.05, 0.0]), atol=1e-6)
    assert torch.equal(begun(0), begun(0))
    assert not torch.equal(begun(0)[1], begun(9)[1])


@both
@every_norm
def test_a_flat_model_is_left_standing(attack: Attack, norm: Norm, iterates: Iterates) -> None:
    """Without a slope there is no plane: nothing is found, and nothing becomes NaN."""

    def flat(x: Tensor) -> Tensor:
        dead = torch.relu(x.flatten(1) - 2).sum(1)
        return torch.stack([dead + 1, dead * 3, dead], 1)

    seen = iterates(
        attack, flat, torch.rand(3, 2, generator=torch.Generator().manual_seed(0)), ZERO.expand(3), 0.1, norm
    )
    for rows in seen:
        assert torch.isfinite(rows["x_adv"]).all()
        assert torch.isinf(rows["best"]).all()


def test_a_point_stepped_back_to_counts_if_it_is_still_misclassified(iterates: Iterates) -> None:
    """A slope that steepens lets the step go far beyond the boundary at 0.56, to the end of the box."""

    def steepening(x: Tensor) -> Tensor:
        f = torch.where(x < 0.55, 0.1 * (x - 0.55) - 0.1, 10 * (x - 0.56))
        return torch.cat([torch.zeros_like(f), f], 1)

    seen = iterates(FabT(iterations=2), steepening, HALF[:, :1], ZERO, 0.1)
    assert seen[1]["best"].item() == pytest.approx(0.5)
    assert seen[1]["x_adv"].item() == pytest.approx(0.95)
    assert seen[2]["best"].item() < 0.45


def test_an_image_that_is_misclassified_already_is_its_own_nearest_point(linear: Linear, iterates: Iterates) -> None:
    last = iterates(Fab(iterations=3), linear(TWO, [0.0, -1.2]), HALF, ZERO, 0.0)[-1]
    assert last["best"].tolist() == [0.0]
    assert torch.equal(last["x_best"], HALF)


def test_every_gradient_and_every_look_is_counted(linear: Linear, iterates: Iterates) -> None:
    calls = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return linear(THREE, [0.0, -1.3, -1.1])(x)

    seen = iterates(FabT(iterations=4), counted, HALF, ZERO, 0.1)
    assert [rows["queries"].item() for rows in seen] == [1, 3, 5, 7, 9]
    assert calls == 9
    seen = iterates(Fab(iterations=2), counted, HALF, ZERO, 0.1)
    assert [rows["queries"].item() for rows in seen] == [0, 3, 6]  # two other classes, and a look


@both
def test_a_model_without_a_gradient_is_an_error(attack: Attack, iterates: Iterates) -> None:
    with pytest.raises(UserError, match="no gradient with respect to its input"):
        iterates(attack, lambda x: x.detach().flatten(1), HALF, ZERO, 0.1)
    scale = torch.ones((), requires_grad=True)
    with pytest.raises(UserError, match="no gradient with respect to its input"):
        iterates(attack, lambda x: scale * x.detach().flatten(1), HALF, ZERO, 0.1)


def audited(model: nn.Module, x: Tensor, y: Tensor, attack: str, eps: float, norm: Norm, seek: bool) -> pd.DataFrame:
    """The attack's records, in the order of the images."""
    audit = classwise.audit(model, (x, y), attack, eps, norm=norm, distances=seek, workers=1, progress=False)
    frame = audit.records.frame
    return frame[frame["attack"] != "clean"].sort_values("index")


def plane_distances(weight: Tensor, z: Tensor, x: Tensor, y: Tensor, norm: Norm) -> FloatArray:
    """How far the nearest plane of another class is in the box, for a linear model of three classes."""
    away = []
    for shift in (1, 2):
        other = (y + shift) % 3
        f = difference(z, y, other)
        slope = (weight[other] - weight[y]).reshape(x.shape)
        step = nearest_step(x, f, slope, ball_of(norm))
        reached = (f + (slope * step).flatten(1).sum(1)).abs() < 1e-4
        away.append(torch.where(reached, ball_of(norm).norm(step), torch.inf))
    return torch.stack(away).amin(0).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fab", "fab_t"])
@every_norm
def test_an_audit_records_the_distances_of_a_linear_model(name: str, norm: Norm) -> None:
    """The distance of an image is that of its nearest plane; it is broken exactly where that is within the radius."""
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(12, 3).requires_grad_(False)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=generator)
    model = nn.Sequential(nn.Flatten(), head)
    x = torch.rand(24, 3, 2, 2, generator=generator)
    y = model(x).argmax(1)
    truth = plane_distances(head.weight, model(x), x, y, norm)
    eps = float(np.median(truth))
    found = audited(model, x, y, f"{name}-30", eps, norm, seek=True)["minimal"].to_numpy()
    assert (found >= truth - 1e-6).all()
    assert (found <= truth * 1.02).all()
    rows = audited(model, x, y, f"{name}-30", eps, norm, seek=False)
    sure = np.abs(truth - eps) > 0.02 * eps
    assert ((rows["prediction"].to_numpy() != y.numpy()) == (truth <= eps))[sure].all()
    assert rows["distance"].max() <= eps * 1.00001


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fab(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: Fab(restarts=0), "restarts must be at least 1, got 0"),
        (lambda: Fab(alpha_max=1.5), "alpha_max must be at least 0 and at most 1, got 1.5"),
        (lambda: Fab(eta=0.9), "eta must be at least 1, got 0.9"),
        (lambda: FabT(beta=1.0), "beta must be positive and below 1, got 1"),
        (lambda: FabT(targets=0), "targets must be at least 1, got 0"),
        (lambda: FabT(per_target=0), "per_target must be at least 1, got 0"),
        (lambda: attacks.parse("fab_t:target=3"), "targets"),
    ],
)
def test_bad_settings_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_the_leading_number_is_that_of_iterations() -> None:
    expected: dict[str, Attack] = {"fab-20": Fab(iterations=20), "fab_t-5": FabT(iterations=5), "fab_t-100": FabT()}
    assert attacks.parse(["fab-20", "fab-t-5", "fab_t"]) == expected
