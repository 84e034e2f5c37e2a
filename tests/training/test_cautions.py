"""Warnings of a training: flips that may change a class, images of the audit, a worst class that cannot select."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from classwise.training import recipe
from classwise.training.cautions import cautions, flipped, undertrained, without_signal
from for_each import for_each

SIGNS = ("stop", "keep right", "turn-left", "speed limit (30km/h)", "bright", "leftovers", "yield")


def made(data: str = "folder:resize=32", augment: Any = ("flip",), **more: Any) -> recipe.Recipe:
    return recipe.build(
        {"data": {"name": data, "augment": augment, "validation": 5, **more}, "method": {"name": "trades"}}
    )


@pytest.mark.parametrize("data", ["mnist", "svhn", "digits", "coloured:of=mnist", "corruption:of=svhn", "coloured"])
def test_digits_are_not_to_be_flipped(data: str) -> None:
    (sentence,) = flipped(made(data), tuple("0123456789"))
    assert f"flips images of {data}: a mirrored one may be of another class" in sentence
    assert not flipped(made(data, ["crop:padding=1"]), tuple("0123456789"))
    assert not flipped(made(data, ["flip:chance=0"]), tuple("0123456789"))


@pytest.mark.parametrize("data", ["cifar10", "fashion_mnist", "corruption"])
def test_things_may_be_flipped(data: str) -> None:
    assert not flipped(made(data), SIGNS)


def test_in_a_folder_the_names_of_the_classes_decide() -> None:
    (sentence,) = flipped(made(), SIGNS)
    assert "may change: keep right, turn-left, speed limit (30km/h). Leave flip out" in sentence
    assert not flipped(made(), ("cat", "bright", "leftovers", "stop"))
    assert "0, 1, 2, 3, 4 and 5 more" in flipped(made(), tuple("0123456789"))[0]
    assert "a, b" in flipped(made(), ("a", "b"))[0]


def test_a_flip_in_a_phase_counts() -> None:
    tree = {**made(augment=()).settings(), "train": {"epochs": 2, "phases": [{"until": 1, "augment": ["flip"]}, {}]}}
    assert flipped(recipe.build(tree), SIGNS)


def test_training_on_the_split_of_audits_is_said() -> None:
    assert not cautions(made(augment=()), SIGNS)
    assert "data.split = test" in cautions(made(augment=(), split="test"), SIGNS)[0]


@for_each("name", recipe.names())
def test_no_shipped_recipe_flips_what_it_should_not(name: str) -> None:
    assert not flipped(recipe.load(name), SIGNS)


def rows(*epochs: tuple[float, ...]) -> pd.DataFrame:
    robust = pd.DataFrame(epochs, columns=[f"robust:{k}" for k in range(len(epochs[0]))])
    return robust.assign(epoch=np.arange(1, len(epochs) + 1), worst=robust.min(axis=1))


def test_a_worst_class_always_at_0_is_said_with_what_selected_instead() -> None:
    history = rows((0, 0, 0.5, 0.5, 0.5, 0.5), (0, 0.3, 0.4, 0.4, 0.4, 0.4))
    (sentence,) = without_signal(history, "worst", 2)
    assert "the average of the 2 lowest of 6 classes did, 15.0% in epoch 2" in sentence
    (sentence,) = without_signal(history[:1], "worst", 1)
    assert "nor could the 2 lowest of 6 classes, so the average of all images did, in epoch 1" in sentence


def test_nothing_is_said_where_the_worst_class_could_select() -> None:
    assert not without_signal(rows((0, 0.5), (0.1, 0.2)), "worst", 2)
    assert not without_signal(rows((0, 0.5), (0, 0.2)), "average", 1)
    assert not without_signal(pd.DataFrame({"epoch": [1]}), "worst", 1)


def test_an_epoch_that_was_selected_early_for_its_worst_class_is_remarked_on() -> None:
    history = pd.DataFrame({"epoch": [4, 11, 12], "worst": [0.138, 0.126, 0.116], "robust": [0.249, 0.354, 0.363]})
    (sentence,) = undertrained(history, "worst", 4)
    assert "Epoch 4 was selected for its worst class, 13.8% with an average of 24.9%; epoch 12 has 11.6%" in sentence
    assert sentence.endswith("With validate.select = average that one is selected.")
    assert not undertrained(history, "worst", 11)
    assert not undertrained(history, "average", 12)
    assert not undertrained(pd.DataFrame({"epoch": [1]}), "worst", 1)
