from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import classwise as cw
from classwise import attacks, studies
from classwise.attacks.attack import craft
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import Threat
from classwise.data import load as load_data
from classwise.studies import tsne
from classwise.studies.runner.work import Environment

PER_CLASS, NEIGHBOURS = 5, 3


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {"model": str(models["madry"]), "per_class": PER_CLASS, "attack": "pgd-2", "perplexity": 5}
    return out, studies.run(studies.parse("tsne", {**options, "neighbours": NEIGHBOURS}), out)


def vectors(model: torch.nn.Module) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The features of the study's images by kind, and their labels, by way of the model's own `features`."""
    images = load_data("digits").subset(per_class=PER_CLASS)
    x, y = images.batch(np.arange(len(images)))
    attack = attacks.parse("pgd-2")["pgd-2"]
    moved = craft(attack, model, x, y, Threat("linf", 0.15), key=rng.keys(0, torch.from_numpy(images.positions)))
    with torch.no_grad():
        return {kind: model.features(z).numpy() for kind, z in (("clean", x), ("adversarial", moved))}, y.numpy()


def test_numbers_are_those_of_the_features(found: tuple[Path, studies.StudyResult], models: dict[str, Path]) -> None:
    _, result = found
    features, labels = vectors(cw.load_model(models["madry"] / "best.pt"))
    table = result.tables["separation"].set_index("images")
    for kind, own in features.items():
        distances = np.linalg.norm(own[:, None] - own[None], axis=2)
        np.fill_diagonal(distances, np.inf)
        near = np.argsort(distances, axis=1)[:, :NEIGHBOURS]
        share = (labels[near] == labels[:, None]).mean()
        assert table.loc[kind, "same neighbours (%)"] == pytest.approx(100 * share)
        chance = (PER_CLASS - 1) / (len(labels) - 1)
        assert table.loc[kind, "kappa"] == pytest.approx((share - chance) / (1 - chance))


def test_both_kinds_share_a_map(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    images = pd.read_csv(out / "jobs" / "madry-map" / "map.csv")
    first, second = (images.loc[images["kind"] == kind, "index"].tolist() for kind in ("clean", "adversarial"))
    assert first == second
    assert images["kind"].value_counts().to_dict() == {"clean": 50, "adversarial": 50}
    assert np.isfinite(images[["x", "y"]]).all(axis=None)
    assert (out / "figures" / "map.svg").is_file()
    assert [claim.numbers for claim in result.claims] == ["the data set names no superclasses"]


def test_the_map_is_the_same_again(
    found: tuple[Path, studies.StudyResult], models: dict[str, Path], tmp_path: Path
) -> None:
    out, _ = found
    tsne.mapped(
        tmp_path,
        Environment(),
        str(models["madry"] / "best.pt"),
        "digits",
        0.15,
        "pgd-2",
        PER_CLASS,
        5.0,
        NEIGHBOURS,
        0,
    )
    first, second = (pd.read_csv(folder / "map.csv") for folder in (out / "jobs" / "madry-map", tmp_path))
    pd.testing.assert_frame_equal(first, second)


def blobs(centres: dict[str, tuple[float, float]], size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Points around a centre for each class, and their class names."""
    rng = np.random.default_rng(0)
    points = [np.array(centre) + rng.normal(size=(size, 2)) for centre in centres.values()]
    return np.concatenate(points), np.repeat(np.array(list(centres), dtype=object), size)


def table(centres: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """What `mapped` writes, for made-up features: cats and dogs are animals, cars and ships vehicles."""
    points, names = blobs(centres)
    groups = np.array(["animal" if name in ("cat", "dog") else "vehicle" for name in names], dtype=object)
    columns = tsne.closeness(points, names, groups, 4)
    frame = pd.DataFrame({"class": names, "group": groups, **columns})
    return pd.concat([frame.assign(kind=kind) for kind in ("clean", "adversarial")])


def test_superclasses_apart_whose_classes_mix() -> None:
    means = tsne.separation(table({"cat": (0, 0), "dog": (0, 0), "car": (100, 0), "ship": (100, 0)}))
    own = means[means["images"] == "adversarial"].set_index("level")
    assert own.loc["superclass", "kappa"] == 1
    assert own.loc["superclass", "silhouette"] > 0.9
    assert abs(own.loc["class inside superclass", "kappa"]) < 0.3
    assert [claim.verdict for claim in tsne._claims("m", means)] == ["held"] * 4


def test_superclasses_that_mix_though_their_classes_are_apart() -> None:
    means = tsne.separation(table({"cat": (0, 0), "car": (0, 0), "dog": (100, 0), "ship": (100, 0)}))
    assert [claim.verdict for claim in tsne._claims("m", means)] == ["did not hold"] * 4


def test_silhouettes_by_hand() -> None:
    """Two classes at 0, 1 and 4, 6: a(0) = 1, b(0) = 5, so the silhouette is 4/5."""
    points = np.array([[0.0], [1.0], [4.0], [6.0]])
    found = tsne.closeness(points, np.array(list("aabb"), dtype=object), None, 1)
    assert found["silhouette_class"][0] == pytest.approx(4 / 5)
    assert found["alike_class"].tolist() == [1, 1, 1, 1]
    assert set(found) == {"silhouette_class", "alike_class"}


def test_a_superclass_of_one_class_has_nothing_inside() -> None:
    points, names = blobs({"cat": (0, 0), "dog": (9, 0), "car": (50, 0)})
    groups = np.where(names == "car", "vehicle", "animal").astype(object)
    columns = tsne.closeness(points, names, groups, 3)
    assert np.isnan(columns["silhouette_inside"][names == "car"]).all()
    frame = pd.DataFrame({"class": names, "group": groups, **columns})
    both = pd.concat([frame.assign(kind=kind) for kind in ("clean", "adversarial")])
    inside = tsne.separation(both).set_index(["images", "level"]).loc[("clean", "class inside superclass")]
    assert inside["n"] == 24
    assert inside["kappa"] == 1
    assert set(tsne.by_class(both)["class"]) == {"cat", "dog", "car"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perplexity": 500.0}, "perplexity must lie between 0 and the number of points, 100"),
        ({"neighbours": 50}, "neighbours must lie between 1 and"),
        ({"attack": "pgd:steps=1|2"}, "one attack; 'pgd:steps=1|2' names 2"),
    ],
)
def test_what_cannot_be_mapped(
    options: dict[str, object], message: str, models: dict[str, Path], tmp_path: Path
) -> None:
    settings = {"attack": "pgd-1", "per_class": PER_CLASS, "perplexity": 5.0, "neighbours": 3, "seed": 0, **options}
    with pytest.raises(UserError, match=message.replace("|", r"\|")):
        tsne.mapped(tmp_path, Environment(), str(models["madry"] / "best.pt"), "digits", 0.15, **settings)  # type: ignore[arg-type]
