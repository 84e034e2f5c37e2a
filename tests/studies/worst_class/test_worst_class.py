"""Methods over seeds: which models are trained from which, what they are compared with, and the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.studies.runner.from_zoo import in_zoo
from classwise.studies.runner.graph import AuditJob, Graph, TrainJob
from classwise.studies.worst_class import WorstClass
from classwise.training import recipe
from classwise.training.prepare import examples, split_off
from quick import QUICK

Found = tuple[Path, studies.StudyResult]

SMALL: dict[str, Any] = {
    "base": "desk/digits/trades",
    "tuned": ["desk/digits/trades", "desk/digits/csl"],
    "scratch": ["desk/digits/madry"],
    "seeds": [0, 1],
    "set": [*QUICK, "data.validation=6"],
    "attack": ["pgd-2"],
    "per_class": 24,
    "repair_attack": "pgd-2",
    "strong": ["pgd-2", "margin_pgd-2"],
    "strong_per_class": 4,
}


def jobs(**changes: Any) -> Graph:
    return Graph.of(studies.parse("worst_class", {**SMALL, **changes}).jobs())


@pytest.mark.slow
def test_the_shipped_zoo_has_what_the_protocol_made() -> None:
    graph = Graph.of(WorstClass(scratch=(), repair=("trades-tuned",)).jobs())
    assert {job.name for job in graph} == in_zoo(graph).keys()


def test_every_method_starts_from_the_base_of_its_own_seed() -> None:
    graph = jobs()
    trainings = {job.name: job for job in graph if isinstance(job, TrainJob)}
    assert {name: set(job.after) for name, job in trainings.items()} == {
        **{f"{name}-{seed}": set() for name in ("trades", "madry") for seed in (0, 1)},
        **{f"{name}-tuned-{seed}": {f"trades-{seed}"} for name in ("trades", "csl") for seed in (0, 1)},
    }
    for name, job in trainings.items():
        assert f"train.seed={name[-1]}" in job.changes
    repaired = {job.name: set(job.after) for job in graph if job.kind == "derive"}
    assert repaired["csl-tuned-1-repaired"] == {"csl-tuned-1", "trades-1"}
    assert set(repaired) == {
        f"{name}-{seed}-repaired" for name in ("trades", "trades-tuned", "csl-tuned") for seed in (0, 1)
    }
    assert not any(job.kind == "derive" for job in jobs(repair=()))
    some = {job.name for job in jobs(repair=("trades-tuned",)) if job.kind == "derive"}
    assert some == {f"trades-tuned-{seed}-repaired" for seed in (0, 1)}
    with pytest.raises(UserError, match=r"unknown group to repair 'madry'.* Known: csl-tuned, trades, trades-tuned"):
        jobs(repair=("madry",))
    assert not any(job.name.startswith("madry") for job in jobs(scratch="none"))


def test_every_model_is_audited_on_all_images_and_under_strong_attacks_on_some() -> None:
    audits = [job for job in jobs() if isinstance(job, AuditJob)]
    models = {job.model for job in audits}
    assert len(audits) == 2 * len(models) == 2 * 7 * 2
    assert {job.options["per_class"] for job in audits if job.name.endswith("-strong")} == {4}
    assert not any(job.name.endswith("-strong") for job in jobs(strong_per_class=0))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [3]}, "one seed says nothing"),
        ({"control": "wat"}, "'wat'"),
        ({"tuned": ["desk/digits/nothing"]}, "nothing"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_trained(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        jobs(**changes)


def test_the_recipes_of_the_protocol_share_a_budget() -> None:
    study = WorstClass()
    tuned = [recipe.load(name) for name in study.tuned]
    scratch = [recipe.load(name) for name in (study.base, *study.scratch)]
    for made in (tuned, scratch):
        assert len({(r.data, r.model, r.threat, r.train.epochs, r.train.batch, r.train.optimizer) for r in made}) == 1
        assert len({(r.train.schedule, r.validate.attack, r.validate.protocol) for r in made}) == 1
    assert {r.validate.select for r in tuned} == {"last"}
    assert [r.validate.select for r in scratch] == ["average"] + ["last"] * len(study.scratch)
    assert {r.data for r in tuned} == {r.data for r in scratch}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    return out, studies.run(studies.parse("worst_class", SMALL), out)


@pytest.mark.slow
def test_differences_are_those_of_compare_groups(found: Found) -> None:
    out, result = found
    folders = {
        name: [out / "jobs" / f"{name}-{seed}-audit" for seed in (0, 1)] for name in ("trades-tuned", "csl-tuned")
    }
    direct = cw.compare_groups(folders, "trades-tuned").table()
    table = result.tables["trades-tuned_audit"]
    assert set(table["group"]) == {"trades-tuned", "csl-tuned", "trades-tuned-repaired", "csl-tuned-repaired"}
    for column in ("mean", "sd", "difference", "difference_low", "p"):
        own = table[table["group"] == "csl-tuned"].set_index("metric")[column]
        pd.testing.assert_series_equal(own, direct[direct["group"] == "csl-tuned"].set_index("metric")[column])
    assert set(result.tables["trades_strong"]["group"]) == {"trades", "madry", "trades-repaired"}


@pytest.mark.slow
def test_claims_are_about_every_group_but_the_controls(found: Found) -> None:
    _, result = found
    named = {claim.text.split(" has ")[0] for claim in result.claims}
    assert named == {"madry", "trades-repaired", "csl-tuned", "trades-tuned-repaired", "csl-tuned-repaired"}
    few = [claim for claim in result.claims if claim.verdict == "not enough images"]
    assert len(few) == len(named)  # 4 images of each class under the strong attacks
    assert set(result.tables["costs"]["group"]) >= named
    assert (result.tables["costs"]["minutes each"] > 0).all()


@pytest.mark.slow
def test_a_repair_is_fitted_on_what_the_training_held_out(found: Found) -> None:
    out, _ = found
    folder = out / "jobs" / "trades-tuned-0-repaired"
    chosen = recipe.load(out / "jobs" / "trades-tuned-0" / "config.toml")
    kept, held_out = split_off(chosen, examples(chosen, None, False, None))
    assert held_out is not None
    calibrated = set(cw.Audit.load(folder / "rounds" / "00").records.index.tolist())
    assert calibrated == set(held_out.positions.tolist())
    assert not calibrated & set(kept.positions.tolist())
    models = (cw.load_model(path / "best.pt") for path in (folder.parent / "trades-tuned-0", folder))
    before, after = (model.state_dict() for model in models)
    assert before.keys() == after.keys()
    assert {name for name, value in before.items() if not torch.equal(value, after[name])} <= {"linear.bias"}
