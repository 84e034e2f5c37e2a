"""Lists among the options of a study, as they are typed."""

from __future__ import annotations

from classwise import studies
from classwise.studies.worst_class import WorstClass


def given(**options: object) -> WorstClass:
    made = studies.parse("worst-class", options)
    assert isinstance(made, WorstClass)
    return made


def test_names_and_numbers_may_have_commas_between_them() -> None:
    assert given(seeds="0,3").seeds == given(seeds=["0", "3"]).seeds == given(seeds="[0, 3]").seeds == (0, 3)
    names = ("protocol/mnist/madry", "protocol/mnist/wat")
    assert given(scratch=",".join(names)).scratch == given(scratch=names).scratch == names
    assert given(scratch="none").scratch == ()


def test_commas_of_settings_separate_nothing() -> None:
    attack = "pgd:steps=5,step=0.1"
    assert given(attack=attack).attack == (attack,)
    assert given(attack=[attack, "fgsm"]).attack == (attack, "fgsm")
    assert given(set="model.spec=resnet:width=4,blocks=[1, 1]").set == ("model.spec=resnet:width=4,blocks=[1, 1]",)
