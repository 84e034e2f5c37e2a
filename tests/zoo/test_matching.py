"""A model of the zoo is found by what its recipe says, not by a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from classwise.core.run_folder import TrainingFolder
from classwise.models import zoo
from classwise.models.zoo import Zoo
from classwise.training import recipe
from classwise.zoo import adding
from classwise.zoo.matching import contents, find
from small_zoo import CHANGES, NAME, made_training, made_zoo


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
        "validate.attack=pgd-3",
        "method.name=mart",
    ],
)
def test_another_recipe(filled: Zoo, change: str) -> None:
    assert found(filled, change) is None


def test_a_model_whose_selected_epoch_was_the_last(filled: Zoo, tmp_path: Path) -> None:
    last = ("validate.select=last", "validate.attack=pgd-3", "validate.protocol=any")
    assert found(filled, *last) == NAME  # the validation of TRADES changes nothing else
    run = TrainingFolder(made_training(tmp_path / "run"))
    run.write_history(run.history().assign(best_epoch=1))
    adding.add(run.path, NAME, tmp_path / "zoo")
    earlier = zoo.in_folder(tmp_path / "zoo")
    assert found(earlier) == NAME
    assert found(earlier, *last) is None


def test_the_validation_of_a_method_that_reads_it() -> None:
    def of(method: str, select: str, attack: str) -> Mapping[str, object]:
        changes = (f"validate.select={select}", f"validate.attack={attack}")
        return contents(recipe.load(f"desk/digits/{method}", changes))

    assert of("trades", "last", "pgd-3") == of("trades", "last", "pgd-5")
    assert of("trades", "worst", "pgd-3") != of("trades", "worst", "pgd-5")
    assert of("wat", "last", "pgd-3") != of("wat", "last", "pgd-5")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    folder = made_zoo(tmp_path)
    (folder / NAME / "best.pt").unlink()
    assert found(zoo.in_folder(folder)) is None
