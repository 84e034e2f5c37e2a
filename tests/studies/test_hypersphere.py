"""Hypersphere embedding against a base: gains under PGD and at the best 1/T, and whether they vanish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import classwise as cw
from classwise import studies
from classwise.attacks import parse
from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.studies.hypersphere import Hypersphere
from classwise.studies.shared.temperature_sweep import specs


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {
        "model": [str(models["madry"])],
        "recipe": ["desk/digits/he"],
        "set": ["train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2"],
        "attack": "pgd-2",
        "inv_temperature": "50",
        "per_class": 5,
    }
    return out, studies.run(studies.parse("hypersphere", options), out)


def test_gains_are_differences_of_the_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    audits = {name: cw.Audit.load(out / "jobs" / f"{name}-temperature") for name in ("madry", "he")}
    names = dict(zip(specs("pgd-2", (1.0, 50.0)), parse(list(specs("pgd-2", (1.0, 50.0)).values())), strict=True))
    total = {
        (model, *key): 100 * audit.rows(name).correct.mean()
        for model, audit in audits.items()
        for key, name in names.items()
    }
    gains = result.tables["gains"].set_index(["variant", "inv_temperature"])["gain"]
    assert gains["float32", "1"] == pytest.approx(total["he", 1.0, False] - total["madry", 1.0, False])
    assert gains["sound", "50"] == pytest.approx(total["he", 50.0, True] - total["madry", 50.0, True])
    lowest = {model: min(total[model, t, True] for t in (1.0, 50.0)) for model in audits}
    assert gains["sound", "best for each"] == pytest.approx(lowest["he"] - lowest["madry"])
    broken = {
        model: np.mean(np.logical_and(*(audit.rows(names[t, True]).correct for t in (1.0, 50.0))))
        for model, audit in audits.items()
    }
    assert gains["sound", "any"] == pytest.approx(100 * (broken["he"] - broken["madry"]))
    grid = result.tables["float32"].set_index("model")
    assert grid.loc["he"]["inv_temperature_50"] == pytest.approx(total["he", 50.0, False])


def test_classes_are_printed_as_in_the_paper(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    table = result.tables["pgd"].set_index("model")
    accuracies = {
        name: 100 * cw.Audit.load(out / "jobs" / f"{name}-temperature").by_class("clean")["accuracy"].mean()
        for name in ("madry", "he")
    }
    assert table["natural"].to_dict() == pytest.approx(accuracies)
    classes = [str(digit) for digit in range(10)]
    assert table.loc["he"][classes].mean() == pytest.approx(table.loc["he"]["pgd"] - table.loc["madry"]["pgd"])


@pytest.fixture
def judged(models: dict[str, Path], audit_of: Callable[..., Audit]) -> Callable[..., dict[str, studies.Claim]]:
    """The claims where each model has so many of 500 right in both classes: at 1, and at 50 in both variants."""

    def verifier(**right: tuple[int, int]) -> dict[str, studies.Claim]:
        names = list(parse(list(specs("pgd-2", (1.0, 50.0)).values())))
        audits = {
            f"{model}-temperature": audit_of(
                {name: [count] * 2 for name, count in zip(names, (one, one, fifty, fifty), strict=True)},
                support=[500] * 2,
            )
            for model, (one, fifty) in right.items()
        }
        given = tuple(f"{name}={models['madry']}" for name in right)
        study = Hypersphere(model=given, attack="pgd-2", inv_temperature=(50.0,))
        result = study.result(SimpleNamespace(audit=audits.__getitem__))  # type: ignore[arg-type]
        return {claim.text: claim for claim in result.claims}

    return verifier


def test_a_gain_that_vanishes_one_that_stays_and_one_that_never_was(
    judged: Callable[..., dict[str, studies.Claim]],
) -> None:
    text = "The gain of {} vanishes when 1/T is large enough (sound)."
    found = judged(he=(300, 240), madry=(250, 260), stays=(330, 320), none=(250, 240))
    assert found["he is more robust than madry under PGD."].verdict == "held"
    assert found[text.format("he")].verdict == "held"
    assert "+10.0 points" in found[text.format("he")].numbers
    assert "-2.0" in found[text.format("he")].numbers
    assert "1/T = 50 (base: 1)" in found[text.format("he")].numbers
    assert found[text.format("stays")].verdict == "did not hold"
    assert found["none is more robust than madry under PGD."].verdict == "not decided here"
    assert found[text.format("none")].verdict == "not decided here"


def test_whether_a_gain_shrinks_is_asked_at_the_largest_1_t(judged: Callable[..., dict[str, studies.Claim]]) -> None:
    text = "At the largest 1/T {} gains less than under PGD (sound)."
    found = judged(he=(300, 240), madry=(250, 260), same=(300, 310), more=(300, 360), none=(240, 200))
    assert found[text.format("he")].verdict == "held"
    assert "+10.0 points under PGD, -4.0 at 1/T = 50, -14.0 (" in found[text.format("he")].numbers
    assert found[text.format("same")].verdict == "not decided here"
    assert found[text.format("more")].verdict == "did not hold"
    assert found["none is more robust than madry under PGD."].verdict == "did not hold"
    assert found[text.format("none")].verdict == "does not apply"


def test_models_that_cannot_be_compared_are_refused(models: dict[str, Path]) -> None:
    one, two = (str(models[name]) for name in ("madry", "standard"))
    with pytest.raises(UserError, match=r"unknown model for --base 'madri'; did you mean 'madry'"):
        studies.parse("hypersphere", {"model": [one, two], "base": "madri"}).jobs()
    with pytest.raises(UserError, match="give a model to compare"):
        studies.parse("hypersphere", {"model": [one]}).jobs()
    options = {"model": [one], "recipe": ["desk/digits/he"], "set": ["threat.eps=0.1"]}
    with pytest.raises(UserError, match="compare models of one setting"):
        studies.parse("hypersphere", options).jobs()
