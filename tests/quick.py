"""Trainings that are over at once, and what so few images may say."""

from __future__ import annotations

from classwise.studies import StudyResult

#: Settings that make a desk/digits recipe a matter of a second or two.
QUICK = ("train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2")


def nothing_decided(outcome: StudyResult) -> None:
    """Of a study of a few images of each class: every claim names its test and how many it would need, no number is
    shown that does not exist, and nothing is decided."""
    for claim in outcome.claims:
        assert claim.verdict in ("not enough images", "not decided here"), claim
        assert "20 are needed" in claim.test or "5 are needed" in claim.test or "none: " in claim.test, claim
        assert "nan" not in claim.numbers, claim
