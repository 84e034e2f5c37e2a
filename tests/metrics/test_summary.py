"""by_class and summary, and the list of metrics."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from classwise import metrics
from classwise.core.errors import UserError
from classwise.metrics import accuracy, average, confusion, cv, mcd, overall, p_worst, superclass, symmetry, tail, worst

COUNTS = np.array([[6, 3, 1, 0], [2, 8, 0, 0], [0, 0, 0, 0], [1, 1, 3, 5]])
NAMES = ("cat", "dog", "car", "ship")
GROUPS = {"animals": ("cat", "dog"), "vehicles": ("car", "ship")}


@pytest.fixture
def records(from_confusion):
    return from_confusion(COUNTS, NAMES, superclasses=GROUPS)


def test_by_class(records):
    table = metrics.by_class(records)
    assert table.columns.tolist() == [
        "class", "n", "correct", "accuracy", "low", "high", "p_worst", "confused_with", "confused_share",
    ]  # fmt: skip
    assert table["class"].tolist() == list(NAMES)
    assert table["n"].tolist() == [10, 10, 0, 10]
    assert table["correct"].tolist() == [6, 8, 0, 5]
    values = accuracy.compute(records)
    np.testing.assert_array_equal(table["accuracy"], values.values)
    np.testing.assert_array_equal(table["low"], values.low)
    np.testing.assert_array_equal(table["high"], values.high)
    np.testing.assert_array_equal(table["p_worst"], p_worst.compute(records).values)
    assert table["confused_with"].tolist() == ["dog", "cat", None, "car"]
    np.testing.assert_allclose(table["confused_share"], [0.75, 1, np.nan, 0.6])


def test_summary_says_what_the_metrics_say(records):
    summary = metrics.summary(records, confidence=0.9)
    total, lowest = overall.compute(records, confidence=0.9), worst.compute(records, confidence=0.9)
    assert (summary["accuracy"], summary["accuracy_low"], summary["accuracy_high"]) == (
        total.value,
        total.low,
        total.high,
    )
    assert summary["worst"] == {
        "class": "ship",
        "classes": ["ship"],
        "accuracy": 0.5,
        "low": lowest.low,
        "high": lowest.high,
    }
    assert summary["average"] == average.compute(records)
    assert summary["cv"] == cv.compute(records)
    assert summary["mcd"] == mcd.compute(records)
    assert summary["tail20"] == tail.compute(records) == 0.5
    assert summary["vulnerable"] == ["cat", "ship"]
    assert summary["confusion"] == COUNTS.tolist()
    assert summary["symmetry"] == symmetry.compute(records)
    flips = superclass.compute(records, 0.9)
    assert (summary["superclass"]["inside"], summary["superclass"]["across"]) == (flips.inside, flips.across)
    assert [row["value"] for row in summary["superclass"]["by_class"]] == [0.75, 1.0, None, 0.6]
    assert summary["by_class"][3]["low"] == accuracy.compute(records, confidence=0.9).low[3]


def test_summary_is_json_with_none_for_what_is_undefined(records):
    summary = metrics.summary(records)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    absent = summary["by_class"][2]
    assert (absent["class"], absent["n"], absent["correct"]) == ("car", 0, 0)
    for key in ("accuracy", "low", "high", "p_worst", "confused_with", "confused_share"):
        assert absent[key] is None, key


def test_summary_of_a_perfect_run_without_superclasses(from_correct):
    summary = metrics.summary(from_correct([5, 5], 5))
    assert json.dumps(summary, allow_nan=False)
    assert "superclass" not in summary
    assert summary["symmetry"] is None
    assert summary["vulnerable"] == []
    assert summary["worst"]["accuracy"] == 1


def test_a_thousand_classes_are_quick(make):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 1000, 50_000)
    right = rng.random(50_000) < rng.beta(4, 4, 1000)[label]
    records = make(label, np.where(right, label, rng.integers(0, 1000, 50_000)), [f"class {c}" for c in range(1000)])
    begin = time.perf_counter()
    summary = metrics.summary(records)
    assert time.perf_counter() - begin < 5  # about half a second; the bound is for a busy machine
    assert sum(row["p_worst"] for row in summary["by_class"]) == pytest.approx(1)


def test_several_attacks_are_refused(records):
    frame = records.frame.assign(attack=np.where(np.arange(len(records)) % 2, "pgd", "fgsm"))
    with pytest.raises(UserError, match=r"needs the rows of one attack.*records\.of"):
        metrics.summary(type(records)(frame, records.meta))


def test_names_are_the_files():
    assert {"accuracy", "worst", "p_worst", "cv", "paired"} <= set(metrics.names())
    assert "intervals" not in metrics.names()


def test_describe_is_one_line_and_names_the_near_miss():
    assert metrics.describe("cv") == "Class-wise variance of the accuracy, in percent²."
    with pytest.raises(UserError, match=r"unknown metric 'confusoin'; did you mean 'confusion'\?"):
        metrics.describe("confusoin")


@pytest.mark.parametrize("classes", [4, 100, 101, 400])
def test_the_confusion_of_many_classes_is_stored_without_empty_cells(from_confusion, classes):
    counts = np.zeros((classes, classes), dtype=np.int64)
    counts[np.arange(classes), np.arange(classes)] = 2
    counts[0, classes - 1] = 7
    summary = metrics.summary(from_confusion(counts, [f"c{number}" for number in range(classes)]))
    text = json.dumps(summary["confusion"], indent=1)
    np.testing.assert_array_equal(confusion.from_stored(json.loads(text)), counts)
    if classes > 100:
        assert summary["confusion"]["classes"] == classes
        assert summary["confusion"]["true"][:3] == [0, 0, 1]
        assert summary["confusion"]["predicted"][:3] == [0, classes - 1, 1]
        assert summary["confusion"]["count"][:3] == [2, 7, 2]
        assert len(text) < 40 * (classes + 1)
    else:
        assert summary["confusion"] == counts.tolist()
