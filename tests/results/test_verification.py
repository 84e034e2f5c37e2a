"""Verification of a submission: what each differing row counts as, and what is tolerated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.results.verification import compare

Make = Callable[..., Audit]
SUPPORT, NAMES = (100, 100), ("cat", "dog")


def again(audit: Audit, rows: np.ndarray) -> Audit:
    """A second audit of some of the images, with probabilities that favour the prediction by far."""
    records = audit.records.take(np.flatnonzero(np.isin(audit.records.index, rows)))
    probs = np.full((len(records), 2), 0.1, dtype=np.float32)
    probs[np.arange(len(records)), records.prediction] = 0.9
    return dataclasses.replace(audit, records=dataclasses.replace(records, probs=probs))


@pytest.fixture
def submitted(audit_of: Make) -> Audit:
    return audit_of({"pgd-20": [40, 60]}, SUPPORT, NAMES)


PART = np.arange(0, 200, 2)  # fifty of each class


def test_an_honest_submission(submitted: Audit) -> None:
    result = compare("mine", submitted, again(submitted, PART))
    assert result.passed
    assert result.counts == {"same": 100, "tie": 0, "clean": 0, "found here": 0, "not repeated": 0}
    assert result.sentences()[0] == "mine holds: 100 of 100 images audited again under pgd-20 agree."
    assert result.claimed() == ("cat", pytest.approx(1 - 0.05 ** (1 / 50)))  # none of 50 cats was found here
    assert result.by_class()["n"].tolist() == [50, 50]


def test_robust_rows_that_are_broken_here(submitted: Audit, audit_of: Make) -> None:
    """The submission claims 40 cats; here 30 are robust, so that 5 of the 10 rows too many are in the part."""
    honest = again(audit_of({"pgd-20": [30, 60]}, SUPPORT, NAMES), PART)
    result = compare("mine", submitted, honest)
    assert (result.counts["found here"], result.passed) == (5, False)
    assert result.differing()["index"].tolist() == [30, 32, 34, 36, 38]
    assert "more than rounding explains in cat" in str(result)
    assert "Images 30 (cat), 32 (cat)," in str(result)
    assert result.by_class()["found here"].tolist() == [5, 0]


def test_rounding_explains_some_but_not_in_one_class_alone(submitted: Audit, audit_of: Make) -> None:
    """Of 100 images at a rate of 2% up to 5 are chance (P(X > 5) = 0.015), of 50 in one of two classes up to 3."""
    assert [int(stats.binom.ppf(0.95, 100, 0.02)), int(stats.binom.ppf(0.975, 50, 0.02))] == [5, 3]
    spread = again(audit_of({"pgd-20": [36, 58]}, SUPPORT, NAMES), PART)
    result = compare("mine", submitted, spread, tolerance=0.02)
    assert (result.counts["found here"], result.allowed, result.passed) == (3, 5, True)
    assert not compare("mine", submitted, spread).passed
    alone = again(audit_of({"pgd-20": [32, 60]}, SUPPORT, NAMES), PART)
    result = compare("mine", submitted, alone, tolerance=0.02)
    assert (result.counts["found here"], result.too_many, result.passed) == (4, ("cat",), False)
    strict = compare("mine", submitted, again(audit_of({"pgd-20": [38, 60]}, SUPPORT, NAMES), PART), tolerance=0)
    assert (strict.counts["found here"], strict.passed) == (1, False)


def test_broken_rows_that_are_robust_here_do_not_count(submitted: Audit, audit_of: Make) -> None:
    result = compare("mine", submitted, again(audit_of({"pgd-20": [50, 60]}, SUPPORT, NAMES), PART))
    assert (result.counts["not repeated"], result.passed) == (5, True)


def test_clean_predictions_must_be_equal_but_for_ties(submitted: Audit, audit_of: Make) -> None:
    other = again(audit_of({"clean": [99, 100], "pgd-20": [40, 60]}, SUPPORT, NAMES), np.arange(90, 110))
    result = compare("mine", submitted, other)
    assert (result.counts["clean"], result.passed) == (1, False)
    assert "1 clean predictions differ" in str(result)
    probs = other.records.probs
    assert probs is not None
    tied = dataclasses.replace(other, records=dataclasses.replace(other.records, probs=np.full_like(probs, 0.5)))
    result = compare("mine", submitted, tied)
    assert (result.counts["tie"], result.passed) == (1, True)


def test_what_is_wrong_with_the_folder_decides(submitted: Audit) -> None:
    result = compare("mine", submitted, again(submitted, PART), wrong=["The weights are others."])
    assert not result.passed
    assert result.sentences()[1] == "The weights are others."
    assert result.summary()["passed"] is False


def test_a_tolerance_is_a_share(submitted: Audit) -> None:
    with pytest.raises(UserError, match="tolerance must be"):
        compare("mine", submitted, again(submitted, PART), tolerance=5)
