"""AutoAttack: which attacks each version is made of, and what the whole does that its parts do."""

from __future__ import annotations

import dataclasses

import pytest

from classwise import attacks
from classwise.attacks.autoattack import Autoattack
from classwise.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("autoattack", ["apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000"]),
        (
            "autoattack:version=plus",
            ["apgd_ce-100", "apgd_dlr-100", "fab-100", "square-5000", "apgd_t-100", "fab_t-100"],
        ),
        ("autoattack:version=rand", ["apgd_ce-100", "apgd_dlr-100"]),
    ],
)
def test_members_in_the_published_order(text: str, names: list[str]) -> None:
    assert list(attacks.parse(text)) == names
    assert attacks.has_suite(text)


def test_restarts_and_targets_are_the_published_ones() -> None:
    standard = {name: attack.restarts for name, attack in attacks.parse("autoattack").items()}
    assert standard == {"apgd_ce-100": 1, "apgd_t-100": 9, "fab_t-100": 9, "square-5000": 1}
    plus = [attack.restarts for attack in Autoattack("plus").members()]
    assert plus == [5, 5, 5, 1, 9, 9]


def test_draws_are_for_the_randomised_version_alone() -> None:
    def draws(suite: Autoattack) -> set[int]:
        return {attacks.settings(attack).get("eot", 1) for attack in suite.members()}

    assert draws(Autoattack("rand")) == {20}
    assert draws(Autoattack("rand", eot=7)) == {7}
    assert draws(Autoattack()) == draws(Autoattack("plus")) == {1}


def test_a_suite_is_no_attack_but_describes_itself() -> None:
    assert "autoattack" not in attacks.names()
    assert attacks.describe("autoattack").startswith("AutoAttack (Croce and Hein")
    assert attacks.usage("autoattack") == "version=standard, eot=20"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Autoattack().version = "plus"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("autoattack:version=standart", "did you mean 'standard'?"),
        ("autoattack:vresion=plus", "unknown setting of autoattack 'vresion'; did you mean 'version'?"),
        ("autoattack:version=rand,eot=many", "autoattack.eot must be a whole number, got 'many'"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        attacks.parse(text)
    assert said in str(caught.value)
