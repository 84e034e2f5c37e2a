"""RepairConfig: its settings are those of Python and of the options, and those of an audit are shared."""

from __future__ import annotations

import inspect

import pytest

import classwise as cw
from classwise.auditing.config import AuditConfig
from classwise.core.errors import UserError
from classwise.core.settings import settings_of
from classwise.repairing.config import RepairConfig, RepairSettings
from classwise.repairing.knobs import KNOBS

SETTINGS = settings_of(RepairConfig)


def test_every_setting_of_python_is_one_of_the_config() -> None:
    usable = {name for name, one in SETTINGS.items() if one.mode is None}
    arguments = set(inspect.signature(cw.repair).parameters)
    assert arguments == {*RepairSettings.__annotations__, "model", "data", "attacks", "eps"}
    assert usable - arguments == {"class_eps", "csv", "as_json"}  # of the command line only
    assert arguments <= usable


def test_what_an_audit_has_too_is_the_same() -> None:
    audit = settings_of(AuditConfig)
    shared = {name for name in SETTINGS if name in audit and name != "attacks"}
    assert {name for name in shared if SETTINGS[name] != audit[name]} == set()
    assert {"model", "weights", "data", "eps", "norm", "device", "out", "confidence"} <= shared


def test_every_knob_can_be_named() -> None:
    for name in KNOBS:
        assert RepairConfig.of(model="lenet", data="digits", knob=name).knob.knob == name
    with pytest.raises(UserError, match="unknown knob 'baias'; did you mean 'bias'"):
        RepairConfig.of(model="lenet", data="digits", knob="baias")


def test_minimums_are_read_from_either_form() -> None:
    for given in ({"cat": "20/100"}, ["cat=0.2"]):
        assert RepairConfig.of(model="lenet", data="digits", min=given).goal.min == (("cat", 0.2),)
    for wrong, why in (
        (["cat"], "a class and the robust accuracy it must reach, such as cat=0.2 .* got 'cat'"),
        (["=0.2"], "a class and"),
        (["cat=2"], "must lie in"),
        ({"cat": "many"}, "expected a number"),
    ):
        with pytest.raises(UserError, match=why):
            RepairConfig.of(model="lenet", data="digits", min=wrong)
