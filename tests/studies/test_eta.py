"""WAT's η swept: three short trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.metrics import rho
from classwise.studies.runner.graph import AuditJob, TrainJob
from classwise.studies.runner.result import Done
from classwise.training import recipe
from quick import QUICK, nothing_decided

Found = tuple[Path, studies.StudyResult]
#: Small batches, so that there is something learned within a second.
LEARNING = (*QUICK, "train.epochs=2", "train.batch=16")
DIGITS = {"recipe": "desk/digits/wat", "base": "desk/digits/trades", "set": LEARNING}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    attacks = {"per_class": 8, "attack": ["fgsm", "pgd-2"]}
    return out, studies.run(studies.parse("eta", {**DIGITS, **attacks, "eta": "0.05,0.5"}), out)


@pytest.mark.slow
def test_the_table_has_every_attack_and_rho_against_the_base(found: Found) -> None:
    out, result = found
    table = result.tables["eta"]
    assert table["attack"].tolist() == ["clean"] * 3 + ["fgsm"] * 3 + ["pgd-2"] * 3
    base, wat = (cw.Audit.load(out / "jobs" / f"{name}-audit") for name in ("base", "eta-0.5"))
    row = table.query("attack == 'pgd-2' and eta == 0.5").iloc[0]
    assert row["average (%)"] == pytest.approx(100 * wat.by_class("pgd-2")["accuracy"].mean())
    assert row["rho"] == pytest.approx(rho.compute(wat.rows("pgd-2"), base.rows("pgd-2")), nan_ok=True)
    assert table.query("method == 'base'")["eta"].isna().all()
    nothing_decided(result)
    assert len(result.claims) == 3


@pytest.mark.slow
def test_autoattack_sees_images_of_its_own_and_has_rows_of_its_own(found: Found) -> None:
    options = {**DIGITS, "per_class": 8, "attack": ["fgsm", "pgd-2"], "eta": "0.05,0.5"}
    study = studies.parse("eta", {**options, "autoattack_per_class": 3})
    plain = {job.name for job in studies.parse("eta", options).jobs()}
    audits = {job.name: job for job in study.jobs() if isinstance(job, AuditJob) and job.name not in plain}
    assert sorted(audits) == ["base-autoattack", "eta-0.05-autoattack", "eta-0.5-autoattack"]
    assert {(job.attacks, job.options["per_class"]) for job in audits.values()} == {(("autoattack",), 3)}

    class Finished(Done):
        """The audits that were made, AutoAttack's being the others under one attack."""

        def audit(self, name: str) -> cw.Audit:
            return cw.Audit.load(found[0] / "jobs" / name.replace("-autoattack", "-audit"))

    table = study.result(Finished(None)).tables["eta"]  # type: ignore[arg-type]
    assert table["attack"].tolist()[-3:] == ["autoattack"] * 3
    worst = cw.Audit.load(found[0] / "jobs" / "eta-0.5-audit").by_class()["accuracy"]
    assert table.iloc[-1]["average (%)"] == pytest.approx(100 * worst.mean())


@pytest.mark.slow
def test_only_eta_differs(found: Found) -> None:
    out, _ = found
    settings = [recipe.read(out / "jobs" / name / "config.toml") for name in ("eta-0.05", "eta-0.5", "base")]
    assert [own["method"].get("eta") for own in settings] == [0.05, 0.5, None]
    assert settings[0]["method"] == {**settings[1]["method"], "eta": 0.05}
    assert settings[0]["train"] == settings[1]["train"] == settings[2]["train"]


def test_the_recipes_own_eta_is_the_recipe_as_it_is() -> None:
    jobs = [job for job in studies.parse("eta", {}).jobs() if isinstance(job, TrainJob)]
    assert [job.name for job in jobs] == ["base", "eta-0.01", "eta-0.05", "eta-0.1", "eta-0.5"]
    assert jobs[-1].changes == ("train.seed=0",)
    assert jobs[1].changes == ("method.eta=0.01", "train.seed=0")


def test_what_cannot_be_swept_is_said_before_training() -> None:
    with pytest.raises(UserError, match="trains trades, which has no setting eta"):
        studies.parse("eta", {"recipe": "desk/digits/trades"}).jobs()
    with pytest.raises(UserError, match="--eta 0: with constant weights WAT is TRADES"):
        studies.parse("eta", {"eta": "0,0.5"}).jobs()
