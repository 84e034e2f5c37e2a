"""Standard against adversarial training, on two small models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.metrics import widening
from quick import QUICK, nothing_decided

Found = tuple[Path, studies.StudyResult]


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    options = {"model": [str(folder) for folder in models.values()], "per_class": 8, "attack": "pgd-2"}
    return out, studies.run(studies.parse("class-bias", options), out)


def accuracies(out: Path, model: str, attack: str) -> np.ndarray:
    audit = cw.Audit.load(out / "jobs" / f"{model}-audit")
    return audit.by_class(attack)["accuracy"].to_numpy()


def test_cv_and_mcd_are_those_of_the_audits(found: Found) -> None:
    out, result = found
    spread = result.tables["spread"].set_index(["model", "accuracy"])
    for model, kind, attack in (("standard", "clean", "clean"), ("madry", "robust", "pgd-2")):
        own = 100 * accuracies(out, model, attack)
        row = spread.loc[(model, kind)]
        assert row["CV (%²)"] == pytest.approx(own.var())
        assert row["MCD (%)"] == pytest.approx(np.ptp(own))
        assert row["worst (%)"] == pytest.approx(own.min())
        assert row["MCD low"] <= row["MCD (%)"] <= row["MCD high"]


def test_robustness_is_held_against_clean_accuracy_of_the_standard_model(found: Found) -> None:
    out, result = found
    robust, clean = (cw.Audit.load(out / "jobs" / f"{name}-audit") for name in ("madry", "standard"))
    expected = widening.compute(robust.rows("pgd-2"), clean.rows("clean"))
    row = result.tables["against_standard"].set_index("accuracy").loc["robust"]
    assert row["CV ratio"] == pytest.approx(expected.ratio)
    change = np.ptp(accuracies(out, "madry", "pgd-2")) - np.ptp(accuracies(out, "standard", "clean"))
    assert row["MCD change (points)"] == pytest.approx(100 * change)


def test_the_epochs_come_from_the_history_of_given_models(found: Found, models: dict[str, Path]) -> None:
    _, result = found
    history = pd.read_csv(models["madry"] / "history.csv")
    table = result.tables["epochs"]
    assert set(table["model"]) == {"madry"}
    np.testing.assert_allclose(table["MCD (%)"], 100 * history["mcd"])
    curves = {"epochs", "epochs_standard", "epochs_less_mean", "epochs_standard_less_mean"}
    assert {"gap", "discrepancy", *curves} == set(result.figures)


@pytest.mark.slow
def test_kept_epochs_are_audited_on_the_test_images(tmp_path: Path) -> None:
    kept = [*QUICK, "train.epochs=2", "train.keep=all"]
    cw.train("desk/digits/madry", out=tmp_path / "madry", changes=kept, progress=False)
    standard = ["standard=desk/digits/standard"]
    options = {"model": [str(tmp_path / "madry")], "recipe": standard, "per_class": 5, "attack": "pgd-2"}
    changes = [change for change in QUICK if "method" not in change]
    study = studies.parse("class-bias", {**options, "set": changes, "epoch": ["madry=1"]})
    result = studies.run(study, tmp_path / "study")
    curve, spread = result.tables["epochs"], result.tables["spread"]
    assert list(curve["epoch"]) == [1, 2]
    for epoch, own in zip((1, 2), curve.itertuples(index=False), strict=True):
        audit = cw.audit(str(tmp_path / f"madry/epochs/000{epoch}.pt"), "digits", "pgd-2", 0.12, per_class=5)
        assert own[2] == pytest.approx(100 * audit.rows().correct.mean())
        assert own[5] == pytest.approx(100 * np.ptp(audit.by_class()["accuracy"]))
    robust = spread[(spread["model"] == "madry") & (spread["accuracy"] == "robust")]
    assert robust["average (%)"].item() == pytest.approx(curve["robust (%)"][0])
    assert "standard" in result.notes[0]
    assert "madry" not in result.notes[0]


def test_a_training_is_told_to_keep_the_epoch_that_is_looked_at() -> None:
    given = {"recipe": ["desk/digits/standard", "desk/digits/madry"], "epoch": ["standard=3", "4"]}
    jobs = {job.name: job for job in studies.parse("class-bias", given).jobs()}
    assert jobs["madry"].changes == ("train.keep=4",)  # type: ignore[attr-defined]
    assert jobs["madry-audit"].model == "{madry}/epochs/0004.pt"  # type: ignore[attr-defined]
    assert jobs["standard-audit"].model == "{standard}/epochs/0003.pt"  # type: ignore[attr-defined]
    every = studies.parse("class-bias", {**given, "set": ["train.keep=2"]}).jobs()
    assert next(job for job in every if job.name == "standard").changes == (  # type: ignore[attr-defined]
        "train.keep=2", "train.keep=all"
    )  # fmt: skip
    for wrong, message in (("99", "trains epochs 1 to"), ("mdary=3", "did you mean 'madry'"), ("soon", "no number")):
        with pytest.raises(UserError, match=message):
            studies.parse("class-bias", {**given, "epoch": [wrong]}).jobs()


def test_every_paper_gets_its_verdict(found: Found) -> None:
    out, result = found
    nothing_decided(result)
    sources = [claim.source for claim in result.claims]
    assert sources.count("tian2021:table5") == sources.count("benz2020:figure2") == 2
    assert {"tian2021:figure1", "tian2020:figure7", "li2023:figure2"} <= set(sources)
    assert (out / "study.md").is_file()


def test_each_data_set_has_its_own_standard_model(models: dict[str, Path]) -> None:
    names = {"standard": "standard", "digits-standard": "standard", "madry": "madry"}
    given = [f"{name}={models[model]}" for name, model in names.items()]
    with pytest.raises(UserError, match="of digits there are 2 standard models and 1 others"):
        studies.parse("class-bias", {"model": given}).jobs()
    with pytest.raises(UserError, match="0 standard models"):
        studies.parse("class-bias", {"model": given, "standard": "plain"}).jobs()
    renamed = [f"digits-standard={models['standard']}", f"other={models['madry']}"]
    study = studies.parse("class-bias", {"model": renamed, "recipe": ["desk/mnist/standard", "desk/mnist/trades"]})
    assert [job.name for job in study.jobs()] == [
        "digits-standard-audit", "other-audit", "standard", "standard-audit", "trades", "trades-audit",
    ]  # fmt: skip
