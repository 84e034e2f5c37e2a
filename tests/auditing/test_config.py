"""AuditConfig: every setting once, and all that is made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import classwise as cw
from classwise.auditing.config import AuditConfig, AuditSettings, SearchSettings
from classwise.auditing.inputs import expanded
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.core.run_folder import AuditFolder
from classwise.core.settings import REQUIRED, settings_of
from classwise.studies.runner.graph import AuditJob

SETTINGS = settings_of(AuditConfig)
POSITIONAL = ("model", "data", "attacks", "eps")
OF_THE_GATE = ("require", "confident", "baseline", "margin", "junit", "summary")
ONLY_OPTIONS = ("class_eps", "find_worst", "csv", "as_json", *OF_THE_GATE)


def of_mode(mode: str) -> set[str]:
    return {one.name for one in SETTINGS.values() if one.name not in ONLY_OPTIONS and one.mode in (None, mode)}


@pytest.mark.parametrize(
    ("function", "mode", "typed"), [(cw.audit, "audit", AuditSettings), (cw.find_worst, "find_worst", SearchSettings)]
)
def test_python_has_every_setting_with_its_default(function: Callable[..., Any], mode: str, typed: type) -> None:
    assert {*typed.__annotations__, *POSITIONAL} == of_mode(mode)
    parameters = inspect.signature(function).parameters
    assert set(parameters) == of_mode(mode)
    for name, parameter in parameters.items():
        default = SETTINGS[name].default
        assert parameter.default == (parameter.empty if default is REQUIRED else default)
        assert f"\n{name}: {SETTINGS[name].text}" in (function.__doc__ or "")


def test_the_command_line_has_every_option_in_the_panel_of_its_group() -> None:
    options = {param.name: param for param in get_command(app).commands["audit"].params}  # type: ignore[attr-defined]
    assert set(options) == {one.name for one in SETTINGS.values() if one.flags}
    for one in SETTINGS.values():
        if one.flags:
            assert options[one.name].rich_help_panel == one.group.capitalize()
            flags = {flag for typed in one.flags for flag in typed.split("/")}
            assert {*options[one.name].opts, *options[one.name].secondary_opts} == flags


def test_settings_lie_in_their_groups_with_their_types() -> None:
    config = AuditConfig.of(model="lenet", data="digits", limit="20", seed=3.0, out="run", class_eps=["1=4/255"])
    assert (config.model.spec, config.data.name, config.data.limit, config.attacks.seed) == ("lenet", "digits", 20, 3)
    assert config.threat.eps == {"*": "8/255", "1": "4/255"}
    assert config.folder == Path("run")
    assert AuditConfig.of(model="lenet", data="digits", out="none").folder == Path("none")
    assert [one.name for one, _ in config.changed()] == ["model", "data", "limit", "eps", "seed", "out"]
    several = AuditConfig.of(model="lenet", data="digits", eps=np.full(3, 0.1))
    assert [one.name for one, _ in several.changed()] == ["model", "data", "eps"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"amp": "float8"}, "unknown amp 'float8'; did you mean 'float16'?"),
        ({"confidence": 95}, "confidence must be positive and below 1, got 95"),
        ({"workerz": 2}, "unknown setting of an audit 'workerz'; did you mean 'workers'?"),
    ],
)
def test_a_mistake_is_named_by_its_setting_in_python_and_in_the_jobs_of_a_study(
    given: dict[str, Any], said: str
) -> None:
    for make in (lambda: AuditConfig.of(model="lenet", data="digits", **given), lambda: job(given)):
        with pytest.raises(UserError) as caught:
            make()
        assert said in str(caught.value)


def job(options: dict[str, Any]) -> AuditJob:
    return AuditJob("a", model="{t}/best.pt", data="digits", attacks=("fgsm",), eps=0.1, options=options)


def test_an_audit_job_of_a_study_is_a_config() -> None:
    config = job({"per_class": 5, "protocol": "final"}).config(out="here", device="cpu")
    assert (config.data.per_class, config.attacks.protocol, config.resources.device) == (5, "final", "cpu")
    assert (config.threat.eps, config.attacks.attacks) == (0.1, ["fgsm"])


FILE = """
[pgd]
steps = 3
step = "2/255"

[[noise]]
draws = [2, 5]

[[noise]]
draws = 7

[transfer]
model = "resnet:width=8,blocks=[1, 1]"
attack = "pgd:steps=2,step=0.1"
"""


def test_attacks_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "attacks.toml"
    file.write_text(FILE)
    specs = expanded(["fgsm", f"@{file}"])
    assert specs == [
        "fgsm",
        "pgd:steps=3,step=2/255",
        "noise:draws=[2, 5]",
        "noise:draws=7",
        "transfer:model=(resnet:width=8,blocks=[1, 1]),attack=(pgd:steps=2,step=0.1)",
    ]
    out = tmp_path / "run"
    file.write_text(FILE.partition("[transfer]")[0])
    audit = cw.audit("resnet:width=4,blocks=[1, 1]", "digits", ["fgsm", f"@{file}"], limit=4, out=out)
    assert audit.attacks == ("fgsm", "pgd-3", "noise-2", "noise-5", "noise-7")
    command = AuditFolder(out).config()["command"]
    assert command["attack"] == specs[:-1]  # so that the folder does not depend on the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pgd]\nstps = 3", "attacks.toml: [pgd]: unknown setting of pgd 'stps'; did you mean 'steps'?"),
        ("[pdg]", "attacks.toml: [pdg]: unknown attack 'pdg'; did you mean 'pgd'?"),
        ("pgd = 3", "attacks.toml: pgd = 3 is no attack; write [pgd] and its settings below."),
        ("[pgd", "cannot read the attacks in"),
        (None, "cannot read the attacks in"),
    ],
)
def test_a_mistake_in_a_file_of_attacks_is_named_with_the_file(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "attacks.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError) as caught:
        expanded(f"@{file}")
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
