"""The verdict in a sentence: its wording in every case."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from classwise.records import AttackInfo, Meta, Records
from classwise.report.verdict import verdict
from classwise.results import Audit

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "ship", "deer")


def audit_with(counts: list[list[int]], names: tuple[str, ...] = NAMES, attack: str = "pgd-20") -> Audit:
    """An audit with this confusion matrix under its only attack."""
    matrix = np.array(counts)
    label, prediction = np.indices(matrix.shape).reshape(2, -1).repeat(matrix.reshape(-1), axis=1)
    frame = pd.DataFrame(
        {
            "index": np.arange(len(label)),
            "label": label,
            "attack": attack,
            "prediction": prediction,
            **dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal"), 0.0),
            **dict.fromkeys(("step", "queries"), 0),
        }
    )
    return Audit(Records(frame, Meta(names, attacks={attack: AttackInfo({"name": "pgd"})})))


def weak(*cat: int) -> list[list[int]]:
    """cat as given, the others far more robust."""
    others = np.diag([0, 600, 700, 500])[1:] + np.array([[400, 0, 0, 0], [300, 0, 0, 0], [500, 0, 0, 0]])
    return [list(cat), *others.tolist()]


def test_a_decided_weak_class() -> None:
    """Wilson's interval of 182 of 1000; the average of 18.2, 60, 70 and 50 is 49.55."""
    assert verdict(audit_with(weak(182, 419, 200, 199))) == (
        "cat is the weak class: 18.2% robust, 95% interval 15.9 to 20.7, 31 points under the average; "
        "half of its failures (51%) become dog."
    )


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ((818, 0, 0), "all 818 of its failures become dog"),
        ((817, 1, 0), "nearly all of its failures (99%) become dog"),
        ((740, 78, 0), "nearly all of its failures (90%) become dog"),
        ((600, 218, 0), "most of its failures (73%) become dog"),
        ((500, 200, 118), "more than half of its failures (61%) become dog"),
        ((400, 218, 200), "half of its failures (49%) become dog"),
        ((330, 288, 200), "four in ten of its failures (40%) become dog"),
        ((309, 309, 200), "its failures become dog and ship most often (38% each)"),
    ],
)
def test_where_the_failures_go(failures: tuple[int, ...], said: str) -> None:
    assert verdict(audit_with(weak(182, *failures))).endswith(f"; {said}.")


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.35, "a third of its failures (35%) become other 0"),
        (0.25, "a quarter of its failures (25%) become other 0"),
        (0.20, "a fifth of its failures (20%) become other 0"),
        (0.10, "its failures go to many classes, most often other 0 (10.0%)"),
    ],
)
def test_small_shares_of_many_classes(share: float, said: str) -> None:
    others = 40
    first = round(1000 * share)
    rest = np.full(others - 1, (1000 - first) // (others - 1))
    rest[: 1000 - first - rest.sum()] += 1
    counts = np.diag([0] + [1000] * others)
    counts[0, 1:] = [first, *rest]
    names = ("cat", *(f"other {number}" for number in range(others)))
    assert verdict(audit_with(counts.tolist(), names)).endswith(f"; {said}.")


def test_no_class_in_particular() -> None:
    counts = np.diag([0] + [1000] * 5)
    counts[0, 1:] = 200
    text = verdict(audit_with(counts.tolist(), ("cat", *"abcde")))
    assert text.startswith("cat is the weak class: 0% robust, 95% interval 0.0 to 0.4, 83 points under the average")
    assert text.endswith("; its failures go to no class in particular.")


def test_few_failures() -> None:
    """One and two failures are not shares."""
    sure = np.diag([0, 10_000])
    assert verdict(audit_with([[0, 1], [0, 10_000]], ("cat", "dog"))).endswith("; its only failure becomes dog.")
    assert verdict(audit_with([[0, 2], *sure[1:].tolist()], ("cat", "dog"))).endswith(
        "; both of its failures become dog."
    )


def test_a_weak_class_without_failures_has_nothing_to_say_of_them() -> None:
    """Of two classes with no failure each the one with fewer images cannot be called weaker."""
    assert verdict(audit_with([[3, 0], [0, 900]], ("cat", "dog"))) == (
        "All 2 classes are equal, 100% robust: every image stands."
    )


def test_too_close_to_call(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [18, 20, 80]}, (100, 100, 100), ("cat", "dog", "ship"))
    assert verdict(audit) == (
        "cat or dog is the weak class, too close to call: cat at 18.0% (11.7 to 26.7) and dog at 20.0% (13.3 to 28.9) "
        "robust, each with its 95% interval; the average is 39.3%; all 82 of the failures of cat become dog."
    )


def test_the_confidence_of_the_audit_decides(audit_of: Make) -> None:
    counts = {"pgd-20": [40, 55, 90]}
    made = [audit_of(counts, (100, 100, 100), ("cat", "dog", "ship"), confidence=c) for c in (0.9, 0.999)]
    assert verdict(made[0]).startswith("cat is the weak class: 40.0% robust, 90% interval")
    assert verdict(made[1]).startswith("cat or dog is the weak class")


def test_three_are_named_and_more_are_counted(audit_of: Make) -> None:
    three = audit_of({"pgd-20": [20, 20, 20, 90]}, [100] * 4, NAMES)
    assert verdict(three).startswith("cat, dog or ship is the weak class, too close to call: cat at 20.0%")
    five = audit_of({"pgd-20": [20, 21, 22, 23, 24, 90]}, [100] * 6)
    assert verdict(five) == (
        "No class stands out as the weak one: it may be any of 5 of the 6 classes, from class 0 at 20.0% to class 4 at "
        "24.0% robust; the average is 33.3%."
    )
    tied = audit_of({"pgd-20": [0] * 30 + [90]}, [100] * 31)
    assert "any of 30 of the 31 classes, all at 0% robust" in verdict(tied)


def test_all_equal(audit_of: Make) -> None:
    def said(right: int) -> str:
        return verdict(audit_of({"pgd-20": [right] * 3}, [20] * 3))

    assert said(9) == "All 3 classes are equal, 45.0% robust: none is weaker than another."
    assert said(0) == "All 3 classes are equal, 0% robust: not one image stands."
    assert said(20) == "All 3 classes are equal, 100% robust: every image stands."


def test_one_class_and_empty_ones(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [5, 0, 0]}, (20, 0, 0), ("cat", "dog", "ship"))
    assert verdict(audit) == (
        "cat is the only class with images: 25.0% robust, 95% interval 11.2 to 46.9. "
        "2 classes have no image and are not counted."
    )
    audit = audit_of({"pgd-20": [5, 0, 95]}, (100, 0, 100), ("cat", "dog", "ship"))
    assert verdict(audit).startswith("cat is the weak class: 5.0% robust")
    assert verdict(audit).endswith(" become dog. 1 class has no image and is not counted.")


def test_without_an_attack(audit_of: Make) -> None:
    audit = audit_of({"clean": [50, 90]}, (100, 100), ("cat", "dog"))
    assert verdict(audit).startswith("Without an attack, cat is the weak class: 50.0% right, 95% interval 40.4 to 59.6")
    assert (
        verdict(audit_of({}, (10, 10))) == "Without an attack, all 2 classes are equal, 100% right: every image stands."
    )
    attacked = audit_of({"clean": [50, 90], "pgd-20": [0, 80]}, (100, 100), ("cat", "dog"))
    assert verdict(attacked, "clean") == verdict(audit)
    assert verdict(attacked).startswith("cat is the weak class: 0% robust")


def test_a_class_with_a_single_image_does_not_take_the_blame(audit_of: Make) -> None:
    """0 of 1 against 100 of 1000: both may be it, and the lowest is always among those named."""
    audit = audit_of({"pgd-20": [0, 100, 900]}, (1, 1000, 1000), ("cat", "dog", "ship"))
    assert verdict(audit).startswith("cat or dog is the weak class, too close to call")


def test_nearly_nothing_is_not_nothing(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [1, 9_999]}, (10_000, 10_000), ("cat", "dog"))
    assert verdict(audit).startswith("cat is the weak class: under 0.1% robust")
    close = audit_of({"pgd-20": [9_995, 10_000]}, (10_000, 10_000), ("cat", "dog"))
    assert "over 99.9% robust" in verdict(close)
    assert "less than 0.1 points under the average" in verdict(close)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("7", "class 7 is"),
        ("tench, Tinca tinca", "“tench, Tinca tinca” is"),
        ("<script>", "“<script>” is"),
        ("all terrain vehicle", "all terrain vehicle is"),
        ("猫", "猫 is"),
    ],
)
def test_names_cannot_be_misread(audit_of: Make, name: str, said: str) -> None:
    audit = audit_of({"pgd-20": [1, 90]}, (100, 100), (name, "dog"))
    assert verdict(audit).startswith(f"{said} the weak class: 1.0% robust")
