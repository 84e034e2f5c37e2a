"""The rows of history.csv, and the rules by which a checkpoint is the best."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import COLUMNS, Records
from classwise.training import history

NAMES = ("cat", "dog")


def records(**predictions: tuple[int, ...]) -> Records:
    """Four examples, two of each class, under the given attacks; the loss is 1 where right and 3 where wrong."""
    label = np.array([0, 0, 1, 1])
    frames = []
    for attack, predicted in predictions.items():
        right = label == np.array(predicted)
        columns = {name: np.zeros(4) for name in COLUMNS}
        columns |= {
            "index": np.arange(4),
            "label": label,
            "prediction": np.array(predicted),
            "loss": np.where(right, 1.0, 3.0),
        }
        frames.append(pd.DataFrame({**columns, "attack": attack}))
    infos = {attack: AttackInfo(settings={}, protocol="final", coverage="all") for attack in predictions}
    return Records(pd.concat(frames, ignore_index=True), Meta(class_names=NAMES, attacks=infos))


def ten(*right: int) -> Records:
    """Twenty examples of each of ten classes, so many of them right under pgd."""
    label = np.repeat(np.arange(10), 20)
    wrong = np.concatenate([np.arange(20) >= count for count in right])
    columns = {name: np.zeros(200) for name in COLUMNS}
    columns |= {"index": np.arange(200), "label": label, "prediction": (label + wrong) % 10}
    infos = {"pgd": AttackInfo(settings={}, protocol="final", coverage="all")}
    meta = Meta(class_names=tuple("abcdefghij"), attacks=infos)
    return Records(pd.DataFrame({**columns, "attack": "pgd"}), meta)


TRAIN = records(train=(0, 0, 1, 0))
VALID = records(clean=(0, 0, 1, 1), pgd=(0, 0, 1, 0), square=(0, 1, 1, 1))


def test_a_row_has_every_class_and_every_class_vector() -> None:
    state = {"weight": torch.tensor([1.0, 2.0]), "rounds": torch.tensor(3.0)}
    row = history.row(5, TRAIN, VALID, ["pgd"], state)
    assert row["epoch"] == 5
    assert (row["train_accuracy"], row["clean"], row["robust"]) == (0.75, 1.0, 0.75)
    assert (row["worst_class"], row["worst"]) == ("dog", 0.5)
    assert (row["robust:cat"], row["robust:dog"], row["clean:dog"]) == (1.0, 0.5, 1.0)
    assert (row["weight:cat"], row["weight:dog"], row["rounds"]) == (1.0, 2.0, 3.0)
    assert row["mcd"] == 0.5
    assert row["cv"] == pytest.approx(25.0**2)


def test_several_attacks_count_by_the_worst_of_them() -> None:
    assert history.row(1, TRAIN, VALID, ["pgd", "square"], {})["robust"] == 0.5


def test_without_validation_a_row_has_what_training_saw() -> None:
    row = history.row(1, TRAIN, None, [], {})
    assert row["train_accuracy"] == 0.75
    assert "robust" not in row


@pytest.mark.parametrize(
    ("rule", "expected"), [("worst", [0.5, 0.75]), ("average", [0.75]), ("minimax", [-2.0]), ("last", [7.0])]
)
def test_scores(rule: str, expected: list[float]) -> None:
    assert history.score(rule, 7, VALID, ["pgd"], None) == pytest.approx(expected)


def test_a_worst_class_at_0_selects_by_the_lowest_fifth() -> None:
    """Both epochs have a class at 0: the one whose lowest two of ten are better wins, though its average is lower."""
    weak, strong = ten(0, 0, *[20] * 8), ten(0, 4, *[10] * 8)
    assert history.score("worst", 1, weak, ["pgd"], None) == pytest.approx([0, 0, 0.8])
    assert history.score("worst", 2, strong, ["pgd"], None) == pytest.approx([0, 0.1, 0.42])
    above = history.score("worst", 3, ten(*[1] * 10), ["pgd"], None)
    assert above == pytest.approx([0.05, 0.05])
    assert above > history.score("worst", 2, strong, ["pgd"], None) > history.score("worst", 1, weak, ["pgd"], None)


def test_minimax_takes_the_methods_own_losses() -> None:
    assert history.score("minimax", 1, VALID, ["pgd"], torch.tensor([0.5, 4.0])) == [-4.0]


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(UserError, match="unknown rule 'best'"):
        history.score("best", 1, VALID, ["pgd"], None)
