"""Which classes lose for equal classes, or for a critical one: three short trainings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.metrics import difference
from classwise.studies.runner.graph import TrainJob
from classwise.training import recipe
from quick import QUICK, nothing_decided

Found = tuple[Path, studies.StudyResult]
#: Small batches, so that there is something learned within a second.
LEARNING = (*QUICK, "train.epochs=2", "train.batch=16")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    options = {"recipe": "desk/digits/csl", "base": "desk/digits/trades", "class_name": ["8"], "set": LEARNING}
    study = studies.parse("critical-class", {**options, "per_class": 10, "attack": ["pgd-2"]})
    return out, studies.run(study, out)


@pytest.mark.slow
def test_changes_are_paired_with_the_base(found: Found) -> None:
    out, result = found
    base, protect = (cw.Audit.load(out / "jobs" / f"{name}-audit") for name in ("base", "protect-8"))
    table = result.tables["changes"].query("training == 'protect-8' and `class` != '(average)'")
    for kind, attack in (("robust", "pgd-2"), ("clean", "clean")):
        direct = difference.compute(base.rows(attack), protect.rows(attack))[:-1]
        own = table[table["accuracy"] == kind]
        np.testing.assert_allclose(own["change (points)"], 100 * direct["difference"])
        np.testing.assert_allclose(own["p (Holm)"], direct["p_holm"])


@pytest.mark.slow
def test_both_scenarios_are_judged(found: Found) -> None:
    out, result = found
    nothing_decided(result)
    assert [claim.text for claim in result.claims] == [
        "equal: the classes become more equal in robustness.",
        "equal: some classes lose robustness.",
        "protect-8: 8 becomes more robust.",
        "protect-8: other classes lose robustness.",
    ]
    methods = [recipe.read(out / "jobs" / name / "config.toml")["method"] for name in ("protect-8", "equal")]
    assert [own.get("critical") for own in methods] == ["8", None]
    assert (out / "figures" / "changes.svg").is_file()
    levels = result.tables["trainings"].query("accuracy == 'robust'")
    assert levels["training"].tolist() == ["base", "equal", "protect-8"]


def test_each_variant_is_trained_in_each_scenario() -> None:
    study = studies.parse("critical-class", {"class_name": ["cat"], "variant": ["target=weakest", "cosine=0.1"]})
    trainings = {
        job.name: recipe.load(job.recipe, job.changes).method for job in study.jobs() if isinstance(job, TrainJob)
    }
    assert list(trainings) == [
        "base", "equal", "equal-target-weakest", "equal-cosine-0.1", "protect-cat", "protect-cat-target-weakest",
        "protect-cat-cosine-0.1",
    ]  # fmt: skip
    last = trainings["protect-cat-cosine-0.1"]
    assert (last.critical, last.cosine, last.target) == ("cat", 0.1, None)


def test_what_cannot_be_protected_is_said_before_training() -> None:
    with pytest.raises(UserError, match="trains trades, which has no setting critical"):
        studies.parse("critical-class", {"recipe": "desk/cifar10/trades"}).jobs()
    with pytest.raises(UserError, match="did you mean 'dog'"):
        studies.parse("critical-class", {"class_name": ["dogg"]}).jobs()
