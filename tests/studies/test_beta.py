"""One class's β swept: two short trainings, and the statistics on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.metrics import confusion, difference
from classwise.studies import beta
from classwise.studies.runner.graph import TrainJob
from classwise.studies.shared.together import halves
from classwise.training import recipe
from quick import QUICK, nothing_decided

Found = tuple[Path, studies.StudyResult]
#: Small batches, so that there is something learned within a second.
LEARNING = (*QUICK, "train.epochs=2", "train.batch=16")
OPTIONS = {"recipe": "desk/digits/trades", "class_name": ["8"], "beta": "0.5,6", "set": LEARNING, "attack": ["pgd-2"]}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    return out, studies.run(studies.parse("beta", {**OPTIONS, "per_class": 10}), out)


@pytest.mark.slow
def test_only_the_named_class_has_another_beta(found: Found) -> None:
    out, _ = found
    made = [recipe.read(out / "jobs" / f"beta-{value}" / "config.toml")["method"]["beta"] for value in ("0.5", "6")]
    assert made == [{"8": 0.5, "*": 6.0}, 6.0]


@pytest.mark.slow
def test_changes_are_paired_with_the_recipes_own_beta(found: Found) -> None:
    out, result = found
    base, low = (cw.Audit.load(out / "jobs" / f"beta-{value}-audit").rows() for value in ("6", "0.5"))
    direct = difference.compute(base, low)[:-1]
    table = result.tables["changes"].query("`class` != '(average)'")
    assert set(table["beta"]) == {0.5}
    np.testing.assert_allclose(table["change (points)"], 100 * direct["difference"])
    np.testing.assert_allclose(table["high"], 100 * direct["high"])
    robust = result.tables["robustness"].query("beta == 6")["robust (%)"]
    np.testing.assert_allclose(robust, 100 * cw.Audit.load(out / "jobs" / "beta-6-audit").by_class()["accuracy"])


@pytest.mark.slow
def test_the_partner_is_most_often_misclassified_as_the_class(found: Found) -> None:
    out, result = found
    taken = cw.Audit.load(out / "jobs" / "beta-6-audit").confusion(rates=True)["8"].drop("8")
    partners = result.tables["partners"].set_index("class")["misclassified as it (%)"]
    np.testing.assert_allclose(partners, 100 * taken[partners.index])
    assert partners.is_monotonic_decreasing
    base = cw.Audit.load(out / "jobs" / "beta-6-audit").rows()
    low = cw.Audit.load(out / "jobs" / "beta-0.5-audit").rows()
    into = confusion.rates(halves([base, low])[0][0])[:, 8]  # the partner is chosen on one half of the images
    into[8] = -1
    assert f"It makes {into.argmax()}, " in result.claims[1].text
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["tian2021:figure4c"] * 3
    assert "trained once" in result.notes[0]
    assert (out / "figures" / "sweep.svg").is_file()


def swept(robust: int, each: int = 400) -> Records:
    """Classes a, b and c with so many images each: a is robust, half of b is misclassified as c, and c as a but for
    so many."""
    label = np.repeat(np.arange(3), each)
    right = np.tile(np.arange(each), 3) < np.repeat([each, each // 2, robust], each)
    zero = dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    prediction = np.where(right, label, (label + 1) % 3)
    frame = pd.DataFrame(
        {"index": np.arange(3 * each), "label": label, "prediction": prediction, "attack": "pgd", **zero}
    )
    return Records(frame, Meta(class_names=("a", "b", "c"), attacks={"pgd": AttackInfo()}))


@pytest.mark.parametrize(("robust", "verdict"), [(160, "held"), (101, "did not hold"), (40, "did not hold")])
def test_the_partner_gains_or_its_gain_is_below_the_margin(robust: int, verdict: str) -> None:
    runs = {6.0: [swept(100)], 0.5: [swept(robust)]}
    _, partner, _ = beta._claims(runs, ["a"], 0.5, 6.0, 0.02)
    assert partner.text == "It makes c, most often misclassified as a, more robust."
    assert partner.verdict == verdict


def test_jobs_of_several_seeds_and_classes() -> None:
    options = {"class_name": ["cat,dog"], "beta": "2", "seeds": "0,1"}
    jobs = {job.name: job for job in studies.parse("beta", options).jobs()}
    trainings = {name: job.changes for name, job in jobs.items() if isinstance(job, TrainJob)}
    assert list(trainings) == ["beta-2-seed0", "beta-2-seed1", "beta-6-seed0", "beta-6-seed1"]
    assert trainings["beta-2-seed1"] == ('method.beta={"cat" = 2.0, "dog" = 2.0, "*" = 6.0}', "train.seed=1")
    assert trainings["beta-6-seed1"] == ("train.seed=1",)
    assert "beta-2-seed1-audit" in jobs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_name": []}, "name the class whose setting is changed: --class-name"),
        (
            {"class_name": ["cta"], "recipe": "desk/cifar10/trades"},
            "unknown class of cifar10 'cta'; did you mean 'cat'",
        ),
        ({"recipe": "desk/digits/madry"}, "desk/digits/madry trains madry, which has no setting beta"),
        ({"beta": "6"}, "a sweep needs at least two values of beta"),
        ({"beta": "-1,6"}, "--beta -1: it must be at least 0"),
        ({"set": ["method.beta={8 = 1.0}"]}, "the recipe has a beta for each class"),
        ({"seeds": []}, "no seed to train with"),
    ],
)
def test_what_cannot_be_swept_is_said_before_training(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        studies.parse("beta", {**OPTIONS, "set": [], **options}).jobs()
