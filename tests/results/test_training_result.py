"""What a training came to on its held-out images: the selected epoch by column or by rule, classes with intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from classwise.results.training_result import TrainingResult
from classwise.stats import intervals


def training(*robust: tuple[float, ...], rule: str = "worst", validation: int = 10, **columns: Any) -> TrainingResult:
    names = "abcdefghij"[: len(robust[0])]
    table = pd.DataFrame(robust, columns=[f"robust:{name}" for name in names])
    clean = pd.DataFrame({f"clean:{name}": [0.9] * len(robust) for name in names})
    whole = pd.concat([table, clean], axis=1).assign(epoch=np.arange(1, len(robust) + 1), robust=table.mean(axis=1))
    config = {"validate": {"select": rule}, "data": {"validation": validation}}
    return TrainingResult(history=whole.assign(clean=0.9, **columns), config=config)


@pytest.mark.parametrize(
    ("rule", "expected"), [("worst", 2), ("average", 3), ("last", 4), ("minimax", None), ("", None)]
)
def test_the_rule_selects_where_the_history_does_not_say(rule: str, expected: int | None) -> None:
    made = training((0.1, 0.5), (0.3, 0.4), (0.2, 0.9), (0.3, 0.3), rule=rule)
    assert made.selected == expected


def test_the_history_s_own_word_counts() -> None:
    assert training((0.1, 0.5), (0.3, 0.4), best_epoch=[1, 1]).selected == 1
    assert training((0.1, 0.5), (0.3, 0.4), best_epoch=[math.nan, 2]).selected == 2


def test_a_worst_class_at_0_selects_by_the_lowest_fifth() -> None:
    assert training((0, 0, 0.9, 0.9, 0.9, 0.9), (0, 0.2, 0.3, 0.3, 0.3, 0.3)).selected == 2


def test_classes_of_the_selected_epoch_have_wilson_s_intervals() -> None:
    made = training((0.1, 0.5), (0.3, 0.4))
    table = made.by_class()
    assert table[["class", "n", "robust", "clean"]].to_numpy().tolist() == [["a", 10, 0.3, 0.9], ["b", 10, 0.4, 0.9]]
    low, high = intervals.bounds(np.array([3, 4]), np.array([10, 10]))
    assert np.allclose(table["low"], low)
    assert np.allclose(table["high"], high)
    tied, share = made.worst()
    assert tied == ("a",)
    assert share.value == 0.3
    assert share.low < low[0]  # exact, and for the lowest of two
    assert share.high > low[0]
    overall = made.overall("robust")
    assert (overall.value, overall.low) == pytest.approx((0.35, float(intervals.bounds(7, 20)[0])))
    assert made.average() == pytest.approx(0.35)


def test_a_class_without_images_counts_for_nothing() -> None:
    made = training((0.3, math.nan, 0.5))
    assert made.by_class()["n"].tolist() == [10, 0, 10]
    assert made.worst()[0] == ("a",)
    assert made.average() == pytest.approx(0.4)


def test_without_settings_there_are_no_intervals_and_without_held_out_images_nothing() -> None:
    bare = TrainingResult(history=training((0.3, 0.3)).history)
    tied, share = bare.worst()
    assert tied == ("a", "b")
    assert math.isnan(share.low)
    assert bare.selected is None
    none = TrainingResult(history=pd.DataFrame({"epoch": [1, 2], "train_loss": [2.0, 1.0]}), config={})
    assert none.shown is None
    assert none.by_class().empty
    assert none.worst()[0] == ()
    assert math.isnan(none.overall("clean").value)
    assert math.isnan(none.average())
