"""Models under one attack each: by their name, by their data set, or the one for all."""

from __future__ import annotations

from typing import Any

import pytest

from classwise import studies
from classwise.core.errors import UserError
from classwise.studies.runner.graph import AuditJob

RECIPES = ["digits=desk/digits/madry", "mnist-madry=desk/mnist/madry", "mnist-trades=desk/mnist/trades"]


def audits(name: str = "relations", **options: Any) -> dict[str, AuditJob]:
    jobs = studies.parse(name, {"recipe": RECIPES, **options}).jobs()
    return {job.name: job for job in jobs if isinstance(job, AuditJob)}


@pytest.mark.parametrize("name", ["relations", "intervals", "weight-norm"])
def test_each_model_has_the_attack_of_its_name_its_data_or_all(name: str) -> None:
    found = audits(name, attack="pgd-7", attack_for=["mnist=pgd:steps=40,step=0.01", "mnist-trades=fgsm"])
    assert {job: own.attacks for job, own in found.items()} == {
        "digits-audit": ("pgd-7",),
        "mnist-madry-audit": ("pgd:steps=40,step=0.01",),
        "mnist-trades-audit": ("fgsm",),
    }
    assert {job: float(own.eps) for job, own in found.items()} == {
        "digits-audit": 0.15, "mnist-madry-audit": 0.3, "mnist-trades-audit": 0.3,
    }  # fmt: skip


def test_the_protocol_is_said_only_where_it_is_not_the_usual_one() -> None:
    assert "protocol" not in audits()["digits-audit"].options  # as jobs were written before there was a choice
    assert audits(protocol="final")["digits-audit"].options["protocol"] == "final"


def test_an_attack_for_nobody_is_an_error() -> None:
    with pytest.raises(UserError, match=r"unknown model or data set of --attack-for 'mnits'; did you mean 'mnist'"):
        audits(attack_for=["mnits=pgd-40"])
    with pytest.raises(UserError, match="'pgd:steps=40' is not of the form NAME=ATTACK"):
        audits(attack_for=["pgd:steps=40"])
