"""Robust and non-robust features: the optimisations on models one can follow by hand, then the study on digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.models.penultimate import penultimate
from classwise.studies.features import building
from classwise.studies.runner.graph import DeriveJob, Graph, TrainJob
from classwise.studies.runner.work import Environment


def first_pixel(x: Tensor) -> Tensor:
    """Features that see one pixel of two."""
    return x.flatten(1)[:, :1]


def test_inversion_moves_only_what_the_features_see() -> None:
    x, start = torch.tensor([[[[0.9, 0.1]]]]), torch.tensor([[[[0.2, 0.6]]]])
    made = building.inverted(first_pixel, x, start, step=0.1, iterations=20)
    torch.testing.assert_close(made, torch.tensor([[[[0.9, 0.6]]]]), atol=1e-6, rtol=0)


def test_inversion_keeps_the_best_point_it_came_by() -> None:
    """In steps of 0.3 from 0 towards 0.35 it comes to 0.3, then swings between 0.6 and 0.3."""
    x, start = torch.tensor([[[[0.35, 0.0]]]]), torch.zeros(1, 1, 1, 2)
    for iterations in (1, 2, 3, 4):
        made = building.inverted(first_pixel, x, start, step=0.3, iterations=iterations)
        assert made[0, 0, 0, 0] == pytest.approx(0.3)


def test_inversion_stays_inside_the_pixels() -> None:
    x, start = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[0.95, 0.5]]]])
    made = building.inverted(lambda z: 2 * first_pixel(z), x, start, step=0.2, iterations=5)
    assert made.max() == 1.0


def test_targets_are_approached_inside_the_ball_also_the_images_own() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    model[1].weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    x = torch.full((2, 1, 1, 2), 0.5)
    made = building.toward(model, x, torch.tensor([0, 1]), eps=0.25, step=0.1, iterations=9)
    torch.testing.assert_close(made[:, 0, 0], torch.tensor([[0.75, 0.5], [0.25, 0.5]]))


@pytest.fixture(scope="module")
def model(models: dict[str, Path]) -> Path:
    return models["standard"] / "best.pt"


def built(model: Path, folder: Path, kind: str, iterations: int = 30) -> tuple[np.ndarray, np.ndarray]:
    building.build(folder, Environment(), kind, str(model), "digits", 6, iterations, 0.1, 0.5, 0)
    with np.load(folder / "images.npz") as content:
        return content["images"].astype(np.float32), content["labels"]


def test_sets_are_made_of_the_same_originals(model: Path, tmp_path: Path) -> None:
    images = load_data("digits", split="train").subset(per_class=6)
    x, labels = built(model, tmp_path, "original")
    np.testing.assert_allclose(x, images.batch(np.arange(60))[0], atol=5e-4)
    np.testing.assert_array_equal(labels, images.labels)

    g = penultimate(cw.load_model(model))
    inverted, own = built(model, tmp_path, "non-robust")
    np.testing.assert_array_equal(own, images.labels)
    with torch.no_grad():
        goal, began, ended = (
            g(torch.from_numpy(z)) for z in (x, x[np.random.default_rng(0).permutation(60)], inverted)
        )
    assert (ended - goal).norm(dim=1).mean() < 0.5 * (began - goal).norm(dim=1).mean()
    assert 0 <= inverted.min() <= inverted.max() <= 1


@pytest.mark.parametrize("kind", ["rand", "det"])
def test_targeted_sets_bear_the_targets_as_labels(model: Path, tmp_path: Path, kind: str) -> None:
    x, original = built(model, tmp_path, "original")
    moved, labels = built(model, tmp_path, kind)
    assert np.sqrt(((moved - x) ** 2).sum(axis=(1, 2, 3))).max() <= 0.5 + 0.01
    if kind == "det":
        np.testing.assert_array_equal(labels, (original + 1) % 10)
    else:
        assert len(np.unique(labels)) == 10
        assert 0 < (labels == original).sum() < 20  # drawn from all classes, the image's own among them
    network = cw.load_model(model)
    with torch.no_grad():
        before, after = (network(torch.from_numpy(z)).log_softmax(1)[np.arange(60), labels].mean() for z in (x, moved))
    assert after > before


# ---- the study ----------------------------------------------------------------------------------------------------


def study(models: dict[str, Path], **options: object) -> studies.Study:
    given = {
        "model": [f"robust={models['madry']}", f"standard={models['standard']}"],
        "retrain": "desk/digits/standard",
        "set": ["train.epochs=1", "data.validation=4", "validate.attack=pgd-1"],
        "sets": ["robust", "non-robust"],
        "train_per_class": 20,
        "iterations": 5,
        "attack": "pgd-2",
        "per_class": 6,
    }
    return studies.parse("features", {**given, **options})


def test_each_set_is_built_trained_on_and_audited(models: dict[str, Path]) -> None:
    graph = Graph.of(study(models, sets="robust,rand", iterations=7, attack_iterations=9).jobs())
    assert sorted(graph.jobs) == sorted(
        name for kind in ("original", "robust", "rand") for name in (f"{kind}-data", f"on-{kind}", f"on-{kind}-audit")
    )
    data, training = graph.jobs["robust-data"], graph.jobs["on-robust"]
    assert isinstance(data, DeriveJob)
    assert isinstance(training, TrainJob)
    assert data.arguments["model"].endswith("madry/best.pt")
    assert data.arguments["iterations"] == 7
    assert training.after == {"robust-data"}
    other = graph.jobs["rand-data"]
    assert isinstance(other, DeriveJob)
    assert (other.arguments["iterations"], Path(other.arguments["model"]).parent.name) == (9, "standard")


def test_the_study_tells_what_its_audits_say(models: dict[str, Path], tmp_path: Path) -> None:
    result = studies.run(study(models), tmp_path)
    classes = result.tables["classes"].set_index(["trained on", "class"])
    for kind in ("original", "robust", "non-robust"):
        audit = cw.Audit.load(tmp_path / "jobs" / f"on-{kind}-audit")
        assert (audit.records.meta.norm, audit.records.meta.eps) == ("l2", 0.25)
        np.testing.assert_allclose(classes.loc[kind, "robust (%)"], 100 * audit.by_class()["accuracy"])
        np.testing.assert_allclose(classes.loc[kind, "clean (%)"], 100 * audit.by_class("clean")["accuracy"])
    sets = result.tables["sets"].set_index("trained on")
    assert sets.loc["original", "order as original (rho)"] == pytest.approx(1)
    assert sets.loc["robust", "CV (%²)"] == pytest.approx(classes.loc["robust", "clean (%)"].var(ddof=0))
    assert len(result.claims) == 3
    trained = cw.Audit.load(tmp_path / "jobs" / "on-robust-audit").config["data"]
    assert trained["name"] == "digits"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": [], "recipe": ["standard=desk/digits/standard"]}, "needs a model called robust"),
        ({"retrain": None}, "give --retrain RECIPE"),
        ({"sets": ["robbust"]}, "unknown set of features 'robbust'; did you mean 'robust'"),
        (
            {"model": [], "recipe": ["robust=desk/mnist/madry", "standard=desk/digits/standard"], "set": []},
            "robust model is for mnist, the standard one for digits",
        ),
    ],
)
def test_what_it_cannot_use(models: dict[str, Path], options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(models, **options).jobs()
