"""Models × attacks: the numbers are the audits', the slope is free of regression to the mean, the claims are judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.results.audit_result import Audit
from classwise.studies.attacks import Attacks, gain_slope

ATTACKS = ["pgd-2", "transfer:attack=pgd-2", "nattack:rounds=1,population=2"]
SLOW = "nattack-rounds-1-population-2"


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {"model": [*map(str, models.values()), f"twin={models['madry']}"], "attack": ATTACKS}
    return out, studies.run(studies.parse("attacks", {**options, "per_class": 8, "slow_per_class": 3}), out)


def test_every_number_is_its_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    table = result.tables["robustness"].set_index(["model", "attack"])
    for attack, job in (("pgd-2", "pgd-2"), (ATTACKS[-1], SLOW)):
        audit = cw.Audit.load(out / "jobs" / f"madry-{job}")
        by_class, row = audit.by_class(), table.loc[("madry", attack)]
        np.testing.assert_allclose(row[list(by_class["class"])].astype(float), 100 * by_class["accuracy"])
        assert row["total"] == pytest.approx(100 * by_class["correct"].sum() / by_class["n"].sum())
        assert row["cv_percent2"] == pytest.approx(np.var(100 * by_class["accuracy"]))
        assert row["mcd"] == pytest.approx(100 * np.ptp(by_class["accuracy"]))
    assert table.loc[("madry", "clean")]["images"] == 80
    assert table.loc[("madry", ATTACKS[-1])]["images"] == 30


def test_transfer_crafts_on_the_surrogate_which_is_not_attacked(
    found: tuple[Path, studies.StudyResult], models: dict[str, Path]
) -> None:
    out, result = found
    assert set(result.tables["robustness"]["model"]) == {"madry", "twin"}
    spec = f"transfer:attack=pgd-2,model={models['standard'] / 'best.pt'}"
    again = cw.audit(str(models["madry"] / "best.pt"), "digits", spec, 0.15, per_class=8, progress=False)
    job = cw.Audit.load(out / "jobs" / "madry-transfer-attack-pgd-2")
    np.testing.assert_array_equal(job.rows().frame["prediction"], again.rows().frame["prediction"])


def test_twins_agree_and_everything_is_written(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    between = result.tables["agreement"].set_index("between")
    assert between.loc["models under pgd-2"]["spearman"] == pytest.approx(1)
    assert between.loc["models under pgd-2"]["kendall_w"] == pytest.approx(1)
    assert len(result.tables["gains"]) == 2 * 3
    assert (out / "figures" / "discrepancy.svg").read_text().startswith("<svg")


def binary(audit_of: Callable[..., Audit], name: str, right: np.ndarray, classes: int) -> Records:
    n = len(right) // classes
    rows = audit_of({name: [0] * classes}, support=[n] * classes).rows(name)
    wrong = (rows.frame["label"] + 1) % classes
    return Records(rows.frame.assign(prediction=np.where(right, rows.frame["label"], wrong)), rows.meta)


@pytest.mark.slow
def test_slope_is_free_of_regression_to_the_mean(audit_of: Callable[..., Audit]) -> None:
    """Every class truly loses 0.1: the slope is 0; the plain regression sees a positive one, as errors are shared."""
    classes, n = 60, 12
    rng, label = np.random.default_rng(1), np.repeat(np.arange(classes), n)
    robust = np.linspace(0.25, 0.95, classes)[label]
    slopes = []
    for _ in range(8):
        # Independent answers, so that what the weaker attack leaves by luck the stronger one takes.
        weak, strong = (rng.random(classes * n) < robust - loss for loss in (0, 0.1))
        runs = (binary(audit_of, "weak", weak, classes), binary(audit_of, "strong", strong, classes))
        slopes.append(gain_slope(*runs))
    slope, _, _, plain = np.array(slopes).T
    assert plain.mean() > 0.2
    assert abs(slope.mean()) < 3 * slope.std() / np.sqrt(len(slope))


def test_slope_finds_losses_of_vulnerable_classes(audit_of: Callable[..., Audit]) -> None:
    """Robustness 0.8, 0.6, 0.4 under the weaker attack and losses 0.05, 0.15, 0.25: slope -0.5."""
    audit = audit_of({"weak": [160, 120, 80], "strong": [150, 90, 30]}, support=[200] * 3)
    slope, low, high, plain = gain_slope(audit.rows("weak"), audit.rows("strong"))
    assert slope == pytest.approx(-0.5)
    assert plain == pytest.approx(-0.5)
    assert low < -0.5 < high < 0


def test_slope_uses_all_images_of_the_weaker_attack(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of({"weak": [160, 120, 80], "strong": [150, 90, 30]}, support=[200] * 3)
    strong = audit.rows("strong")
    few = strong.take(np.flatnonzero(strong.index % 5 == 0))
    slope, low, high, _ = gain_slope(audit.rows("weak"), few)
    whole = gain_slope(audit.rows("weak"), strong)
    assert slope == pytest.approx(-0.5, abs=0.05)
    assert high - low > whole[2] - whole[1]


def test_classes_that_cannot_be_told_apart_have_no_slope(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of({"weak": [5, 5, 5], "strong": [4, 4, 4]}, support=[10] * 3)
    assert np.isnan(gain_slope(audit.rows("weak"), audit.rows("strong"))[:3]).all()


@pytest.fixture
def judged(models: dict[str, Path], audit_of: Callable[..., Audit]) -> Callable[..., dict[str, studies.Claim]]:
    """The claims of a study of one model whose audits have so many right of 200 in each class."""

    def verifier(**right: list[int]) -> dict[str, studies.Claim]:
        jobs = {f"madry-{name}": audit_of({name: counts}, support=[200] * 3) for name, counts in right.items()}
        study = Attacks(model=(str(models["madry"]),), attack=tuple(right))
        return {claim.text: claim for claim in study.result(SimpleNamespace(audit=jobs.__getitem__)).claims}  # type: ignore[arg-type]

    return verifier


def test_claims_are_judged_by_intervals(judged: Callable[..., dict[str, studies.Claim]]) -> None:
    pair = "Of the white-box attacks fgsm and pgd the stronger gains mainly on vulnerable classes."
    held = judged(fgsm=[160, 120, 80], pgd=[150, 90, 30])
    assert {claim.verdict for claim in held.values()} == {"held"}
    assert "pgd breaks 15.0 points more than fgsm, slope -0.50" in held[pair].numbers
    assert judged(fgsm=[160, 120, 80], pgd=[60, 90, 75])[pair].verdict == "did not hold"
    assert judged(fgsm=[160, 120, 80], pgd=[140, 100, 60])[pair].verdict == "not decided here"


def test_another_class_is_the_worst_under_another_attack(judged: Callable[..., dict[str, studies.Claim]]) -> None:
    found = judged(fgsm=[160, 120, 80], pgd=[150, 30, 70])
    assert found["One class is the least robust in all settings."].verdict == "did not hold"
    assert found["One class is the most robust in all settings."].verdict == "held"


def test_white_box_attacks_are_not_compared_with_black_box_ones(
    judged: Callable[..., dict[str, studies.Claim]],
) -> None:
    found = judged(pgd=[160, 120, 80], square=[150, 90, 30])
    assert not any("stronger" in text for text in found)


def test_without_a_surrogate_transfer_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"give --surrogate one of madry, a checkpoint or zoo:NAME"):
        studies.parse("attacks", {"model": [str(models["madry"])]}).jobs()
    with pytest.raises(UserError, match="no other model is left"):
        studies.parse("attacks", {"model": [str(models["standard"])]}).jobs()


def test_a_surrogate_may_be_a_checkpoint(models: dict[str, Path]) -> None:
    options = {
        "model": [str(models["madry"])],
        "surrogate": str(models["standard"] / "best.pt"),
        "attack": ["transfer"],
    }
    (job,) = studies.parse("attacks", options).jobs()
    assert job.settings()["attacks"] == (f"transfer:model={models['standard'] / 'best.pt'}",)
