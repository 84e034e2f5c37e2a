"""Errors name the value, the near miss and what there is."""

from __future__ import annotations

import pytest

from classwise.core.errors import UserError, unknown


def test_a_user_error_is_a_value_error() -> None:
    assert issubclass(UserError, ValueError)


def test_unknown_names_the_value_the_near_miss_and_everything_known() -> None:
    error = unknown("attack", "pdg", ["pgd", "noise", "clean"])
    assert str(error) == "unknown attack 'pdg'; did you mean 'pgd'? Known: clean, noise, pgd."


def test_the_near_miss_does_not_mind_capitals() -> None:
    assert "did you mean 'fgsm'?" in str(unknown("attack", "FGSM", ["fgsm", "pgd"]))


def test_nothing_is_guessed_where_nothing_is_near() -> None:
    assert str(unknown("attack", "zzzz", ["pgd"])) == "unknown attack 'zzzz'. Known: pgd."


def test_of_many_names_the_nearest_are_listed() -> None:
    names = [f"n{number:04}" for number in range(1000)]
    text = str(unknown("class", "n012", names))
    assert "did you mean 'n0" in text
    assert text.endswith(" and 990 others.")
    assert len(text) < 200
    assert str(unknown("class", "zebra", names)).endswith("n0008, n0009 and 990 others.")


@pytest.mark.parametrize("known", [[], iter(())])
def test_an_owner_without_names_says_so(known: list[str]) -> None:
    assert str(unknown("setting of clean", "foo", known)) == "unknown setting of clean 'foo'. Known: none."
