"""Attacks from specs: settings, sweeps, short names and their collisions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from classwise import attacks
from classwise.attacks.attack import Attack, Model, Rows
from classwise.attacks.clean import Clean
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.margin_pgd import MarginPgd
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.attacks.temperature_pgd import TemperaturePgd
from classwise.core.errors import UserError
from classwise.core.threat import Ball


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        ("pgd", Pgd()),
        ("pgd-50", Pgd(steps=50)),
        ("pgd:steps=20,step=0.003,restarts=5", Pgd(step=0.003, restarts=5)),
        ("pgd-40:step=2/255,start=gaussian,clamp=false", Pgd(40, 2 / 255, 1, "gaussian", False)),
        ("pgd:target=3", Pgd(target=3)),
        ("pgd:target=unlikely", Pgd(target="unlikely")),
        ("pgd:target=none,step=none", Pgd()),
        ("fgsm:start=uniform", Fgsm(start="uniform")),
        ("margin-pgd-100", MarginPgd(steps=100)),
        ("margin_pgd:confidence=0", MarginPgd(confidence=0)),
        ("temperature-pgd-20:inv-temperature=50,sound=yes", TemperaturePgd(inv_temperature=50, sound=True)),
        ("noise-100:where=boundary", Noise(100, "boundary")),
        ("clean", Clean()),
    ],
)
def test_a_spec_is_an_attack(text: str, attack: Attack) -> None:
    assert list(attacks.parse(text).values()) == [attack]


def test_several_specs_and_objects_keep_their_order() -> None:
    parsed = attacks.parse(["pgd-10", Noise(), "fgsm", Pgd(steps=1)])
    assert parsed == {"pgd-10": Pgd(steps=10), "noise-10": Noise(), "fgsm": Fgsm(), "pgd": Pgd(steps=1)}
    assert list(parsed) == ["pgd-10", "noise-10", "fgsm", "pgd"]
    assert attacks.parse(Pgd()) == {"pgd-20": Pgd()}


def test_several_values_make_one_attack_each() -> None:
    swept = attacks.parse("temperature_pgd:inv_temperature=[2, 5, 50],sound=true")
    assert list(swept) == [
        "temperature_pgd-20:inv_temperature=2",
        "temperature_pgd-20",  # all its fields that tell it apart have their defaults
        "temperature_pgd-20:inv_temperature=50",
    ]
    assert [a.inv_temperature for a in swept.values()] == [2.0, 5.0, 50.0]  # type: ignore[attr-defined]
    assert list(attacks.parse("pgd:steps=[10, 20],start=[uniform, none]")) == [
        "pgd-10",
        "pgd-10:start=none",
        "pgd-20",
        "pgd-20:start=none",
    ]
    assert attacks.parse("pgd:steps=10|20") == attacks.parse("pgd:steps=[10, 20]")  # as older run folders have it


def test_colliding_names_say_what_differs_from_the_others_and_from_the_defaults() -> None:
    parsed = attacks.parse(["pgd-20", "pgd-20:step=0.003", "pgd-20:step=0.003,clamp=false,restarts=5"])
    assert list(parsed) == ["pgd-20", "pgd-20:step=0.003", "pgd-20:step=0.003,restarts=5,clamp=false"]


def test_the_same_attack_twice_is_once() -> None:
    assert attacks.parse(["pgd-20", "pgd:steps=20", Pgd()]) == {"pgd-20": Pgd()}


def test_overrides_reach_every_attack_that_has_the_field() -> None:
    parsed = attacks.parse(["pgd-5", "noise", "clean"], eot=4, restarts=None, step="2/255")
    assert parsed == {"pgd-5": Pgd(steps=5, eot=4, step=2 / 255), "noise-10": Noise(), "clean": Clean()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pdg-20", "unknown attack 'pdg'; did you mean 'pgd'?"),
        ("rows", "unknown attack 'rows'"),
        ("pgd:stps=3", "unknown setting of pgd 'stps'; did you mean 'steps'?"),
        ("pgd:steps=many", "pgd.steps must be a whole number, got 'many'"),
        ("pgd:step=1e400", "pgd.step must be a number such as 8/255 or 0.031, got '1e400'"),
        ("pgd:start=unifrom", "did you mean 'uniform'?"),
        ("pgd:target=rnadom", "did you mean 'random'?"),
        ("pgd:clamp=perhaps", "pgd.clamp must be true or false, got 'perhaps'"),
        ("pgd-0", "steps must be at least 1, got 0"),
        ("pgd-20-5", "pgd.steps must be a whole number, got '20-5'"),
        ("pgd-20:steps=10", "'pgd-20:steps=10' gives steps twice"),
        ("pgd:steps=[10, ten]", "got 'ten'"),
        ("clean-5", "clean takes no argument, got 'clean-5'"),
        ("clean:steps=5", "unknown setting of clean 'steps'. Known: none."),
        ([], "no attack given; try 'pgd-20'. Known: apgd_ce, apgd_dlr,"),
        ([Pgd], "is not an attack: give a spec such as 'pgd-20' or an attack object"),
        ([20], "20 is not an attack"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        attacks.parse(text)
    assert said in str(caught.value)


@dataclass(frozen=True)
class Own(Attack):
    """A user's attack, with a setting that has no default."""

    strength: int
    steps: int = 1
    restarts: int = 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": rows["x"]}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return rows


@dataclass(frozen=True)
class Another(Own):
    """Of the same module, with one more field."""

    colour: str = "red"


def test_attacks_of_a_users_own_are_named_and_told_apart() -> None:
    module = __name__.rpartition(".")[2]
    assert attacks.parse([Own(3), Own(4)]) == {f"{module}-3": Own(3), f"{module}-4": Own(4)}
    assert list(attacks.parse([Own(3), Another(3, colour="blue")])) == [f"{module}-3", f"{module}-3:colour=blue"]
    with pytest.raises(UserError, match=f"two different attacks are both called {module}-3"):
        attacks.parse([Own(3), Another(3)])


def test_describe_is_the_first_sentence_and_refuses_other_files() -> None:
    assert attacks.describe("pgd").startswith("Projected gradient descent (Madry")
    with pytest.raises(UserError, match="unknown attack 'row'"):
        attacks.describe("row")
