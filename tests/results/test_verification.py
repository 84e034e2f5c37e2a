"""Verification of a submission: what each differing row counts as, and what is tolerated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

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
    assert str(result) == "mine holds: 100 of 100 images audited again under pgd-20 agree."
    assert result.by_class()["n"].tolist() == [50, 50]


def test_robust_rows_that_are_broken_here(submitted: Audit, audit_of: Make) -> None:
    """The submission claims 40 cats; here 36 are robust, so that 2 of the 4 rows too many are in the part."""
    honest = again(audit_of({"pgd-20": [36, 60]}, SUPPORT, NAMES), PART)
    result = compare("mine", submitted, honest)
    assert (result.counts["found here"], result.allowed, result.passed) == (2, 0, False)
    assert result.differing()["index"].tolist() == [36, 38]
    assert "Images 36 (cat), 38 (cat)." in str(result)
    assert result.by_class()["found here"].tolist() == [2, 0]
    assert compare("mine", submitted, honest, tolerance=0.02).passed
    assert not compare("mine", submitted, honest, tolerance=0.019).passed


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
