"""Studies that look at the model of a given epoch instead of the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from classwise import studies
from classwise.core.errors import UserError
from classwise.studies.runner.epochs import at_epoch, kept
from classwise.studies.runner.graph import AuditJob, TrainJob
from classwise.studies.runner.models_under_study import Setting, find_models, from_recipe


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("homing", {"recipe": ["desk/digits/madry"], "classes": ["3"]}),
        ("beta", {"recipe": "desk/digits/trades", "class_name": ["3"], "beta": [0.5]}),
        ("weight", {"recipe": "desk/digits/trades", "class_name": ["3"], "weight": [0.5]}),
        ("temperature", {"recipe": ["desk/digits/madry"]}),
    ],
)
def test_every_model_is_that_of_the_epoch_and_every_training_keeps_it(name: str, options: dict[str, Any]) -> None:
    jobs = studies.parse(name, {**options, "epoch": 4}).jobs()
    trained = [job for job in jobs if isinstance(job, TrainJob)]
    assert trained
    assert all("train.keep=4" in job.changes for job in trained)
    audits = [job.model for job in jobs if isinstance(job, AuditJob)]
    assert audits == [f"{{{job.name}}}/epochs/0004.pt" for job in trained]


def test_a_training_that_keeps_it_anyway_stays_the_same_job() -> None:
    model = from_recipe("madry", "desk/digits/madry", ("train.keep=2",))
    found = at_epoch(model, 4)
    assert found.training == model.training
    short = from_recipe("madry", "desk/digits/madry", ("train.epochs=5", "train.keep=2"))
    assert [epoch for epoch, _ in kept(short)] == [2, 4, 5]


def test_a_run_folder_must_have_kept_it(tmp_path: Path) -> None:
    for name in ("best.pt", "epochs/0002.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (given,) = find_models([f"mine={tmp_path}"], [], [], Setting("digits", 0.1, "linf"))
    assert at_epoch(given, 2).checkpoint == str(tmp_path / "epochs" / "0002.pt")
    assert [epoch for epoch, _ in kept(given)] == [2]
    with pytest.raises(UserError, match=r"does not keep epoch 3; it keeps 2\."):
        at_epoch(given, 3)
