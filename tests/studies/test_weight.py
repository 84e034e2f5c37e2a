"""One class's loss weight swept: three short trainings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.studies.runner.graph import TrainJob
from classwise.training import recipe
from quick import QUICK, nothing_decided

Found = tuple[Path, studies.StudyResult]
#: Small batches, so that there is something learned within a second.
LEARNING = (*QUICK, "train.epochs=2", "train.batch=16")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    options = {"recipe": "desk/digits/trades", "class_name": ["8"], "weight": "0.5,2.5", "set": LEARNING}
    return out, studies.run(studies.parse("weight", {**options, "per_class": 8, "attack": ["pgd-2"]}), out)


@pytest.mark.slow
def test_the_weights_of_all_classes_have_mean_one(found: Found) -> None:
    out, _ = found
    weight = recipe.read(out / "jobs" / "weight-2.5" / "config.toml")["method"]["weight"]
    assert weight["8"] == 2.5
    assert weight["8"] + 9 * weight["*"] == pytest.approx(10)
    assert recipe.read(out / "jobs" / "weight-1" / "config.toml")["method"]["weight"] == 1.0


@pytest.mark.slow
def test_levels_are_those_of_the_audits(found: Found) -> None:
    out, result = found
    table = result.tables["weights"].set_index("weight")
    accuracies = {
        value: cw.Audit.load(out / "jobs" / f"weight-{value:g}-audit").by_class()["accuracy"] for value in table.index
    }
    assert list(table.index) == [0.5, 1.0, 2.5]
    for value, own in accuracies.items():
        assert table.loc[value, "average (%)"] == pytest.approx(100 * own.mean())
        assert table.loc[value, "worst (%)"] == pytest.approx(100 * own.min())
    changed = result.tables["changes"].query("weight == 2.5 and `class` != '(average)'")["change (points)"]
    np.testing.assert_allclose(changed, 100 * (accuracies[2.5] - accuracies[1.0]), atol=1e-9)


@pytest.mark.slow
def test_the_claims_go_from_the_least_to_the_middle_to_the_largest(found: Found) -> None:
    _, result = found
    nothing_decided(result)
    assert [claim.numbers[:17] for claim in result.claims] == ["weight 0.5 to 1: "] * 2 + ["weight 1 to 2.5: "]


def test_the_paper_sweeps_shares_of_a_total_of_one() -> None:
    """Cat at 0.05 to 0.25 of ten classes, the others (1 − w)/9; a share of 0.1 is the recipe as it is."""
    jobs = studies.parse("weight", {"class_name": ["cat"]}).jobs()
    trainings = {
        job.name: recipe.load(job.recipe, job.changes).method.weight for job in jobs if isinstance(job, TrainJob)
    }
    assert list(trainings) == ["weight-0.5", "weight-1", "weight-1.5", "weight-2", "weight-2.5"]
    assert trainings.pop("weight-1") == 1.0
    for share, own in zip((0.05, 0.15, 0.2, 0.25), trainings.values(), strict=True):
        assert (own["cat"], own["*"]) == pytest.approx((10 * share, 10 * (1 - share) / 9))


def test_what_cannot_be_swept_is_said_before_training() -> None:
    with pytest.raises(UserError, match="--weight 10: it must be at least 0 and below 10"):
        studies.parse("weight", {"class_name": ["cat"], "weight": "10"}).jobs()
    given = {"class_name": ["cat"], "recipe": "desk/cifar10/trades", "set": ["data.name=folder:resize=32"]}
    with pytest.raises(UserError, match="does not say how many classes it has: give --num-classes"):
        studies.parse("weight", given).jobs()
    assert studies.parse("weight", {**given, "num_classes": 3}).jobs()
