"""Temperature-PGD over 1/T: its numbers, lost gradients, one image's path, and what is claimed from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

import classwise as cw
from classwise import studies
from classwise.attacks import craft, parse
from classwise.core.errors import UserError
from classwise.core.threat import Threat
from classwise.results.audit_result import Audit
from classwise.studies.runner.work import Environment
from classwise.studies.shared.temperature_sweep import specs
from classwise.studies.temperature import Temperature
from classwise.studies.temperature.derived import _started, path

ATTACK = "pgd:steps=2,start=none"
HUGE = 1e7  # a 1/T at which float32 has lost the gradient even of models that are hardly trained


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {"model": [str(models["madry"])], "attack": ATTACK, "inv_temperature": f"5,{HUGE}", "per_class": 5}
    return out, studies.run(studies.parse("temperature", options), out)


def digits(per_class: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = cw.load_data("digits", split="test").subset(per_class=per_class, seed=0)
    return images.batch(np.arange(len(images)))


def test_at_one_float32_is_pgd(found: tuple[Path, studies.StudyResult], models: dict[str, Path]) -> None:
    pgd = cw.audit(str(models["madry"] / "best.pt"), "digits", ATTACK, 0.15, per_class=5, progress=False)
    row = found[1].tables["float32"].query("inv_temperature == 1").iloc[0]
    by_class = pgd.by_class()
    np.testing.assert_allclose(row[list(by_class["class"])].astype(float), 100 * by_class["accuracy"])
    assert row["total"] == pytest.approx(100 * pgd.rows().correct.mean())
    assert row["change_total"] == 0


def test_numbers_are_the_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    audit = cw.Audit.load(out / "jobs" / "madry-temperature")
    sweep = result.tables["sweep"].set_index("inv_temperature")
    totals = {
        (attack.inv_temperature, attack.sound): 100 * audit.rows(name).correct.mean()  # type: ignore[attr-defined]
        for name, attack in parse(list(specs(ATTACK, (1.0, 5.0, HUGE)).values())).items()
    }
    for (t, sound), total in totals.items():
        assert sweep.loc[t]["sound" if sound else "float32"] == pytest.approx(total)
    changes = result.tables["sound"].set_index("inv_temperature")
    assert changes.loc[5.0]["change_total"] == pytest.approx(totals[5.0, True] - totals[1.0, False])
    best = result.tables["best"].set_index("variant")
    assert best.loc["float32"]["accuracy"] == pytest.approx(min(totals[5.0, False], totals[HUGE, False]))


def test_lost_gradients_are_counted(found: tuple[Path, studies.StudyResult], models: dict[str, Path]) -> None:
    x, y = digits(5)
    model = cw.load_model(models["madry"] / "best.pt")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(x) * HUGE, y, reduction="sum"), x)
    zero = (gradient.flatten(1) == 0).all(1)
    assert 0 < zero.sum() < len(y)  # those it is right about are lost, the others not
    sweep = found[1].tables["sweep"].set_index("inv_temperature")
    assert sweep.loc[HUGE]["no_gradient"] == pytest.approx(100 * float(zero.float().mean()))
    assert sweep.loc[1.0]["no_gradient"] == 0
    counted = pd.read_csv(found[0] / "jobs" / "madry-gradients" / "gradients.csv").query(f"inv_temperature == {HUGE}")
    np.testing.assert_array_equal(counted["zero"], np.bincount(y[zero].numpy(), minlength=10))


def test_gradients_are_taken_where_the_audit_starts(models: dict[str, Path]) -> None:
    """A step of nothing leaves an audit's points at their random starts."""
    model = str(models["madry"] / "best.pt")
    attack = "pgd:steps=1,step=1e-9"
    audit = cw.audit(model, "digits", attack, 0.15, per_class=5, seed=3, protocol="final", progress=False)
    images = cw.load_data("digits", split="test").subset(per_class=5, seed=3)
    module = cw.load_model(model)
    rows = _started("pgd-2", module, images, cw.Threat("linf", 0.15), seed=3)
    p = module(rows["x_adv"]).softmax(1).gather(1, rows["y"][:, None])[:, 0].detach()
    assert p.std() > 1e-3
    np.testing.assert_allclose(audit.rows().frame["true_prob"], p, atol=1e-6)


def test_an_images_confidences_are_followed_step_by_step(
    found: tuple[Path, studies.StudyResult], models: dict[str, Path]
) -> None:
    out, _ = found
    table = pd.read_csv(out / "jobs" / "madry-path" / "path.csv", dtype={"class": str, "true_class": str})
    images = cw.load_data("digits", split="test")
    image = images.take(np.flatnonzero(images.positions == table["image"].iloc[0]))
    model = cw.load_model(models["madry"] / "best.pt")
    x, y = image.batch(np.array([0]))
    assert table["true_class"].iloc[0] == image.class_names[int(y)]
    assert table["attack"].nunique() == 2
    for step in (1, 2):
        attack = parse(f"pgd:steps={step},start=none")[f"pgd-{step}" if step > 1 else "pgd"]
        p = model(craft(attack, model, x, y, Threat("linf", 0.15)))[0].softmax(0).detach().numpy()
        own = table[(table["attack"] == "PGD") & (table["step"] == step)]
        np.testing.assert_allclose(own["probability"], p, atol=1e-6)
    start = table[table["step"] == 0].pivot(index="class", columns="attack", values="probability")
    np.testing.assert_allclose(start.iloc[:, 0], start.iloc[:, 1])


def test_everything_is_written(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    assert set(result.figures) == {"temperature", "confidence", "path_madry"}
    assert {claim.source for claim in result.claims} == {"tian2021:table3", "tian2020:table6", "tian2021:figure3a"}
    assert list(result.tables["confidence"]["class"]) == [str(digit) for digit in range(10)]
    assert (out / "figures" / "temperature.svg").is_file()


@pytest.fixture
def judged(
    models: dict[str, Path], audit_of: Callable[..., Audit], tmp_path: Path
) -> Callable[..., studies.StudyResult]:
    """The result of a study of one model with so many right of 200 in each class: at 1, at 50, and at 50 sound."""

    def verifier(one: list[int], plain: list[int], sound: list[int], dead: int = 0) -> studies.StudyResult:
        names = list(parse(list(specs("pgd-2", (1.0, 50.0)).values())))
        audit = audit_of(dict(zip(names, (one, one, plain, sound), strict=True)), support=[200] * 3)
        rows = [(t, name, 200, dead if t > 1 else 0) for t in (1.0, 50.0) for name in audit.records.class_names]
        lost = pd.DataFrame(rows, columns=["inv_temperature", "class", "n", "zero"])
        steps = [(step, name, 0.3, kind) for kind in "ab" for step in (0, 1) for name in audit.records.class_names]
        path = pd.DataFrame(steps, columns=["step", "class", "probability", "attack"]).assign(true_class="class 0")
        tables = {"gradients.csv": lost, "path.csv": path}
        done = SimpleNamespace(audit=lambda _: audit, table=lambda _, file: tables[file])
        study = Temperature(model=(str(models["madry"]),), attack="pgd-2", inv_temperature=(50.0,))
        return study.result(done)  # type: ignore[arg-type]

    return verifier


def verdicts(result: studies.StudyResult) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in result.claims}


def test_an_attack_that_gains_on_the_vulnerable(judged: Callable[..., studies.StudyResult]) -> None:
    found = verdicts(judged([160, 120, 80], [150, 90, 30], [150, 90, 30]))
    assert found["Temperature-PGD (float32) breaks more images of madry than PGD."] == "held"
    assert found["At the best 1/T classes differ more than under PGD: CV grows."] == "held"
    assert found["A steep model is more robust at large 1/T than under PGD, and not only by rounding."] == (
        "not decided here"
    )


def test_a_rise_that_is_only_rounding_is_told_from_one_that_is_not(judged: Callable[..., studies.StudyResult]) -> None:
    text = "A steep model is more robust at large 1/T than under PGD, and not only by rounding."
    rounding = judged([100, 100, 100], [160, 160, 160], [101, 101, 101], dead=150)
    assert verdicts(rounding)[text] == "did not hold"
    (claim,) = (claim for claim in rounding.claims if claim.text == text)
    assert "+30.0" in claim.numbers
    assert "75% without gradient" in claim.numbers
    assert verdicts(rounding)["Temperature-PGD (float32) breaks more images of madry than PGD."] == "did not hold"
    real = judged([100, 100, 100], [160, 160, 160], [158, 158, 158])
    assert verdicts(real)[text] == "held"


def test_specs_keep_the_settings_of_the_pgd() -> None:
    (attack,) = parse(specs("pgd:steps=7,step=0.003,restarts=2", (2.0,))[2.0, True]).values()
    assert (attack.steps, attack.step, attack.restarts) == (7, 0.003, 2)  # type: ignore[attr-defined]
    assert (attack.inv_temperature, attack.sound) == (2.0, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inv_temperature": "1"}, "holds only 1"),
        ({"inv_temperature": "0,2"}, "must be positive"),
        ({"attack": "fgsm"}, "variant of pgd"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str, models: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=message):
        studies.parse("temperature", {"model": [str(models["madry"])], **options}).jobs()


def test_an_image_that_is_not_there_is_refused(
    models: dict[str, Path], found: tuple[Path, studies.StudyResult], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no test image 99999"):
        path(
            tmp_path, Environment(), str(models["madry"] / "best.pt"), "digits", 0.15, ATTACK, (1.0, 5.0, HUGE), 0,
            str(found[0] / "jobs" / "madry-temperature"), 99999,
        )  # fmt: skip
