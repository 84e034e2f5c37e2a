"""Fairness methods against their base: the numbers, who starts from whom, and what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.attacks.autoattack import Autoattack
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.metrics import rho
from classwise.results.audit_result import Audit
from classwise.studies.fairness import Fairness
from classwise.studies.runner.graph import TrainJob

QUICK = ["train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2"]


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options: dict[str, Any] = {"recipe": ["desk/digits/trades", "desk/digits/frl_rw"], "set": QUICK}
    options |= {"model": [str(models["madry"])], "attack": ["pgd-2"], "per_class": 6, "autoattack_per_class": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Autoattack, "members", lambda self: [Fgsm(), Pgd(steps=2)])  # the real one takes minutes
        return out, studies.run(studies.parse("fairness", {**options, "linear_epochs": 1}), out)


def test_numbers_are_the_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    audits = {name: cw.Audit.load(out / "jobs" / f"{name}-audit") for name in ("trades", "frl_rw", "madry")}
    table = result.tables["methods"].set_index(["attack", "model"])
    for attack in ("clean", "pgd-2"):
        for name, audit in audits.items():
            accuracy = 100 * audit.by_class(attack)["accuracy"]
            row = table.loc[(attack, name)]
            assert row["average"] == pytest.approx(accuracy.mean())
            assert row["worst"] == pytest.approx(accuracy.min())
            assert row["cv_percent2"] == pytest.approx(accuracy.var(ddof=0))
            np.testing.assert_equal(row["rho"], rho.compute(audit.rows(attack), audits["trades"].rows(attack)))
    summary = result.tables["summary"].set_index("model")
    assert summary.loc["madry"]["pgd-2_avg"] == table.loc[("pgd-2", "madry")]["average"]
    assert summary.loc["madry"]["natural_worst"] == table.loc[("clean", "madry")]["worst"]


def test_autoattack_counts_what_any_of_its_attacks_breaks(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    audit = cw.Audit.load(out / "jobs" / "madry-autoattack")
    assert audit.headline == "worst_case"
    row = result.tables["methods"].set_index(["attack", "model"]).loc[("autoattack", "madry")]
    assert row["images"] == 20
    assert row["average"] == pytest.approx(100 * audit.records.worst_case().correct.mean())


def test_a_method_that_fine_tunes_starts_from_the_base(found: tuple[Path, studies.StudyResult]) -> None:
    out, _ = found
    config = (out / "jobs" / "frl_rw" / "config.toml").read_text()
    assert str(out / "jobs" / "trades" / "best.pt") in config
    options = {"recipe": ["desk/digits/wat", "desk/digits/frl_rwrm", "desk/digits/trades"], "autoattack_per_class": 0}
    jobs = studies.parse("fairness", {**options, "set": QUICK}).jobs()
    trainings = {job.name: job for job in jobs if isinstance(job, TrainJob)}
    assert trainings["frl_rwrm"].after == {"trades"}
    assert not trainings["wat"].after
    assert not any("autoattack" in job.name for job in jobs)


def test_a_method_that_distils_learns_from_the_base_where_that_is_its_teachers_network() -> None:
    for recipes, taught in (
        (["desk/digits/absld", "desk/digits/trades"], True),
        (["cifar10/absld", "cifar10/trades"], False),  # a ResNet, where the paper's teacher is a WideResNet
    ):
        jobs = studies.parse("fairness", {"recipe": recipes, "autoattack_per_class": 0}).jobs()
        training = next(job for job in jobs if isinstance(job, TrainJob) and job.name == "absld")
        assert ("teacher.weights={trades}/best.pt" in training.changes) is taught


def test_the_bound_is_beside_what_was_measured(found: tuple[Path, studies.StudyResult]) -> None:
    _, result = found
    bound = result.tables["bound"]
    assert ((bound["vacuous"] == "yes") == (bound["total"] >= 1)).all()
    (claim,) = (claim for claim in result.claims if claim.source == "li2023:theorem3")
    assert claim.verdict == "not decided here"
    assert "vacuous, being above 1" in claim.numbers


def test_everything_is_drawn(found: tuple[Path, studies.StudyResult]) -> None:
    assert set(found[1].figures) == {"radar_pgd-2", "radar_autoattack", "scatter_pgd-2", "scatter_autoattack"}
    assert (found[0] / "figures" / "radar_autoattack.svg").is_file()


@pytest.fixture
def judged(models: dict[str, Path], audit_of: Callable[..., Audit]) -> Callable[..., studies.StudyResult]:
    """The result where each model has so many of 500 right in each class under pgd-2."""

    def verifier(bound: dict[str, float] | None = None, **right: list[int]) -> studies.StudyResult:
        audits = {f"{name}-audit": audit_of({"pgd-2": counts}, support=[500] * 3) for name, counts in right.items()}
        given = tuple(f"{name}={models['madry']}" for name in right)
        tables = {
            "bound.csv": pd.DataFrame([{"form": form, **(bound or {})} for form in ("as stated", "tightened")]),
            "classes.csv": pd.DataFrame({"split": ["test"], "n": [100], "error": [0.5], "wrong": [50]}),
        }
        done = SimpleNamespace(audit=audits.__getitem__, table=lambda _, file: tables[file])
        epochs = 0 if bound is None else 1
        study = Fairness(model=given, attack=("pgd-2",), autoattack_per_class=0, linear_epochs=epochs)
        return study.result(done)  # type: ignore[arg-type]

    return verifier


def verdicts(result: studies.StudyResult) -> dict[str, str]:
    return {claim.text.partition(" robust worst")[0]: claim.verdict for claim in result.claims}


def test_claims_are_judged_by_intervals(judged: Callable[..., studies.StudyResult]) -> None:
    result = judged(trades=[400, 300, 100], wat=[380, 290, 180], frl_rw=[390, 290, 102], csl=[300, 200, 50])
    found = verdicts(result)
    assert found["wat has a more"] == "held"
    assert found["frl_rw has a more"] == "not decided here"
    assert found["csl has a more"] == "did not hold"
    assert found["wat has the best rho."] == "held"
    row = result.tables["methods"].query("attack == 'pgd-2' and model == 'wat'").iloc[0]
    assert row["rho"] == pytest.approx(80 / 100 + (850 - 800) / 800)
    assert row["rho_low"] < row["rho"] < row["rho_high"]
    base = result.tables["methods"].query("model == 'trades'")
    assert (base["rho"] == 0).all()  # by definition, so it has no interval
    assert base[["rho_low", "rho_high"]].isna().all(axis=None)


def test_another_method_has_the_best_rho(judged: Callable[..., studies.StudyResult]) -> None:
    found = verdicts(judged(trades=[400, 300, 100], wat=[380, 290, 130], frl_rw=[390, 290, 220]))
    assert found["wat has the best rho."] == "did not hold"
    assert "wat has the best rho." not in verdicts(judged(trades=[400, 300, 100], frl_rw=[390, 290, 220]))


def test_without_a_right_image_in_a_class_rho_is_not_defined(judged: Callable[..., studies.StudyResult]) -> None:
    result = judged(trades=[400, 300, 0], wat=[380, 290, 130])
    assert verdicts(result)["wat has the best rho."] == "not decided here"
    assert "a class of the base has accuracy 0" in result.claims[-1].numbers


@pytest.mark.parametrize(
    ("total", "verdict"), [(0.7, "held"), (0.3, "did not hold"), (0.5, "not decided here"), (3.0, "not decided here")]
)
def test_the_theorem_holds_only_if_it_says_something(
    total: float, verdict: str, judged: Callable[..., studies.StudyResult]
) -> None:
    bound = {"total": total, "measured": 0.5, "measured_low": 0.4, "measured_high": 0.6}
    result = judged(bound, trades=[400, 300, 100], wat=[380, 290, 180])
    assert result.claims[-1].source == "li2023:theorem3"
    assert result.claims[-1].verdict == verdict


def test_a_base_alone_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="give a model to compare"):
        studies.parse("fairness", {"model": [f"trades={models['madry']}"]}).jobs()
    with pytest.raises(UserError, match="unknown model for --base 'trades'"):
        studies.parse("fairness", {"model": [str(models["madry"])]}).jobs()


def test_what_is_as_in_the_paper_is_not_noted_as_different() -> None:
    recipes: dict[str, Any] = {"recipe": ("desk/digits/trades", "desk/digits/wat"), "protocol": "final"}
    recipes["autoattack_per_class"] = 0
    as_printed = ["pgd:steps=100,step=0.003", "margin_pgd:steps=30,step=0.003"]
    assert Fairness(**recipes, attack=tuple(as_printed))._notes() == []
    assert "0.003" in Fairness(**recipes)._notes()[0]
