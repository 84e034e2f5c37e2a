"""The verdict: who is the worst class, who may be it, and the sentence in every case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from classwise.results import verdict
from classwise.results.audit_result import Audit

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "ship", "deer")


def test_a_decided_worst_class(audit_of: Make) -> None:
    """The exact interval of 182 of 1000 as the lowest of four; the average of 18.2, 60, 70 and 50 is
    49.55, in binary a little less."""
    found = audit_of({"pgd-20": [182, 600, 700, 500]}, [1000] * 4, NAMES).verdict()
    assert (found.status, found.worst, found.possible) == ("decided", ("cat",), ("cat",))
    assert found.sentence == (
        "Under pgd-20, cat is the worst class: 18.2% robust (95% CI of the worst class 15.9–21.4%); the average "
        "of the classes is 49.5%; most often misclassified as dog (100% of its errors)."
    )


def test_a_class_that_is_not_told_from_another(audit_of: Make) -> None:
    found = audit_of({"pgd-20": [18, 20, 80]}, (100, 100, 100), ("cat", "dog", "ship")).verdict()
    assert (found.status, found.worst, found.possible) == ("undecided", ("cat",), ("cat", "dog"))
    assert found.sentence == (
        "Under pgd-20, cat has the lowest accuracy: 18.0% robust (95% CI of the worst class 11.0–29.0%); the average "
        "of the classes is 39.3%; most often misclassified as dog (100% of its errors); but at 95% confidence 2 of "
        "the 3 classes may be the worst (cat, dog)."
    )


def test_the_confidence_of_the_audit_decides(audit_of: Make) -> None:
    """Fisher's one-sided p of 55 against 40 of 100 is 0.0236; the level is (1 − confidence) / 2."""
    made = {c: audit_of({"pgd-20": [40, 55, 90]}, (100,) * 3, confidence=c).verdict() for c in (0.9, 0.97, 0.999)}
    assert [found.status for found in made.values()] == ["decided", "undecided", "undecided"]
    assert "(99.9% CI of the worst class " in made[0.999].sentence
    assert "but at 99.9% confidence 2 of" in made[0.999].sentence


def test_ties_are_named_together_whatever_their_number_of_images(audit_of: Make) -> None:
    found = audit_of({"pgd-20": [2, 4, 90, 1]}, (20, 40, 100, 10), NAMES).verdict()
    assert (found.status, found.worst, found.possible) == ("tied", ("cat", "dog", "deer"), ("cat", "dog", "deer"))
    assert found.sentence == (
        "Under pgd-20, 3 of the 4 classes tie for the worst (cat, dog, deer): 10.0% robust (95% CI of the worst class "
        "0.3–27.6%); the average of the classes is 30.0%."
    )
    close = audit_of({"pgd-20": [0, 0, 1, 90]}, (50, 20, 50, 100), NAMES).verdict()
    assert (close.worst, close.possible) == (("cat", "dog"), ("cat", "dog", "ship"))
    assert "; at 95% confidence 1 more may be the worst." in close.sentence


def test_all_equal(audit_of: Make) -> None:
    found = audit_of({"pgd-20": [0] * 3}, [20] * 3).verdict()
    assert (found.status, len(found.worst)) == ("equal", 3)
    assert found.sentence == (
        "Under pgd-20, all 3 classes are equally accurate: 0.0% robust (95% CI of the worst class 0.0–21.3%)."
    )


def test_one_class_and_classes_without_images(audit_of: Make) -> None:
    found = audit_of({"pgd-20": [5, 0, 0]}, (20, 0, 0), ("cat", "dog", "ship")).verdict()
    assert (found.status, found.classes, found.absent) == ("single", 1, 2)
    assert found.sentence == (
        "Under pgd-20, cat is the only class with images: 25.0% robust (95% CI 8.7–49.1%). "
        "2 classes have no images and are not counted."
    )
    found = audit_of({"pgd-20": [5, 0, 95]}, (100, 0, 100), ("cat", "dog", "ship")).verdict()
    assert found.worst == ("cat",)
    assert found.sentence.endswith("(100% of its errors). 1 class has no images and is not counted.")


def test_without_an_attack_and_in_the_worst_case(audit_of: Make) -> None:
    audit = audit_of({"clean": [50, 90], "pgd-20": [10, 80], "fgsm": [20, 70]}, (100, 100), ("cat", "dog"))
    assert audit.verdict("clean").sentence.startswith(
        "Without an attack, cat is the worst class: 50.0% correct (95% CI"
    )
    assert audit.verdict().sentence.startswith(
        "In the worst case over all attacks, cat is the worst class: 10.0% robust"
    )
    assert audit_of({}, (10, 10)).verdict().attack == "clean"


def test_too_few_images_make_no_verdict(audit_of: Make) -> None:
    """0 of 9 against 1000 of 1000 is beyond chance, but nine images are no sample of a class; ten are."""
    found = audit_of({"pgd-20": [0, 1000]}, (9, 1000), ("cat", "dog")).verdict()
    assert (found.status, found.possible) == ("few images", ("cat",))
    assert found.sentence.endswith("; but 9 images are not enough to call it the worst class, which takes 10.")
    assert audit_of({"pgd-20": [0, 1000]}, (10, 1000), ("cat", "dog")).verdict().status == "decided"
    one = audit_of({"pgd-20": [0, 100, 900]}, (1, 1000, 1000), ("cat", "dog", "ship")).verdict()
    assert (one.status, one.possible) == ("undecided", ("cat", "dog"))


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
    assert audit.verdict().sentence.startswith(f"Under pgd-20, {said} the worst class: 1.0% robust")


def test_nearly_nothing_is_not_nothing(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [1, 9_999]}, (10_000, 10_000), ("cat", "dog"))
    assert "cat is the worst class: <0.1% robust" in audit.verdict().sentence


@pytest.mark.parametrize(
    ("right", "images", "headline"),  # intervals: exact bounds, the upper one with Šidák over the classes
    [
        ((182, 600, 700, 500), (1000,) * 4, "cat is the worst class: 18.2% robust (95% CI 15.9–21.4%)."),
        ((18, 20, 80, 85), (100,) * 4, "cat or dog is the worst class: 18.0% robust (95% CI 11.0–29.4%)."),
        ((18, 20, 22, 85), (100,) * 4, "cat or one of 2 others is the worst class: 18.0% robust (95% CI 11.0–29.4%)."),
        ((2, 4, 90, 1), (20, 40, 100, 10), "3 of 4 classes tie for the worst: 10.0% robust (95% CI 0.3–27.6%)."),
        ((0, 0, 0, 0), (20,) * 4, "All 4 classes are equally accurate: 0.0% robust (95% CI 0.0–22.4%)."),
        ((1, 300, 300, 300), (6, 300, 300, 300), "cat looks worst, on 6 images: 16.7% robust (95% CI 0.4–73.3%)."),
        ((12, 0, 0, 0), (30, 0, 0, 0), "cat is the only class with images: 40.0% robust (95% CI 22.7–59.4%)."),
    ],
)
def test_in_one_line(audit_of: Make, right: tuple[int, ...], images: tuple[int, ...], headline: str) -> None:
    found = audit_of({"pgd-20": list(right)}, images, NAMES).verdict()
    assert found.headline == headline


def test_it_is_ready_for_json(audit_of: Make) -> None:
    found = audit_of({"pgd-20": [2, 2, 90]}, (20, 20, 100), ("cat", "dog", "ship")).verdict().to_dict()
    assert found["worst"] == ["cat", "dog"]
    assert found["confused_with"] is None
    assert found["sentence"].startswith("Under pgd-20, 2 of the 3 classes tie")
    assert set(found) == {*verdict.Verdict.__dataclass_fields__, "sentence"}
