"""A model of the zoo is found by what its recipe says, not by a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from classwise.models import zoo
from classwise.models.zoo import Zoo
from classwise.training import recipe
from classwise.zoo.matching import find
from small_zoo import CHANGES, NAME, made_zoo


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return zoo.in_folder(made_zoo(tmp_path_factory.mktemp("zoo")))


def found(filled: Zoo, *changes: str) -> str | None:
    entry = find(recipe.load("desk/digits/trades", (*CHANGES, *changes)), filled)
    return None if entry is None else entry.name


def test_the_same_recipe(filled: Zoo) -> None:
    assert found(filled) == NAME
    assert found(filled, "threat.eps=3/20", "method.beta=6", "train.seed=0") == NAME
    assert found(filled, "train.keep=all", "train.save_minutes=1") == NAME


@pytest.mark.parametrize(
    "change",
    [
        "train.seed=1",
        "train.epochs=3",
        "threat.eps=0.1",
        "method.beta=5",
        "validate.select=average",
        "method.name=mart",
    ],
)
def test_another_recipe(filled: Zoo, change: str) -> None:
    assert found(filled, change) is None


def test_files_that_are_not_there(tmp_path: Path) -> None:
    folder = made_zoo(tmp_path)
    (folder / NAME / "best.pt").unlink()
    assert found(zoo.in_folder(folder)) is None
