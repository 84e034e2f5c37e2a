"""Every study attacks a model in the norm it was trained in, unless it is told another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.attacks import craft, parse
from classwise.core.errors import UserError
from classwise.core.threat import BALLS, Threat
from classwise.studies import tsne
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, StudyJob, TrainJob
from classwise.studies.runner.models_under_study import Setting, find_models, from_recipe
from classwise.studies.runner.work import Environment
from classwise.training.recipe import load
from for_each import for_each
from quick import QUICK

L2 = ("threat.norm=l2", "threat.eps=0.5")
MADRY, TRADES = "desk/digits/madry", "desk/digits/trades"

#: What each study needs besides to say its jobs.
OPTIONS: dict[str, dict[str, Any]] = {
    "attacks": {"recipe": [MADRY, "desk/digits/standard"]},
    "background": {"recipe": [MADRY], "mnist_recipe": TRADES, "mnist_set": L2, "mnist_eps": "0.5"},
    "beta": {"recipe": TRADES, "class_name": ["1"]},
    "class-bias": {"recipe": [MADRY, "desk/digits/standard"]},
    "critical-class": {"recipe": "desk/digits/csl", "base": TRADES, "class_name": ["1"]},
    "eta": {"recipe": "desk/digits/wat", "base": TRADES},
    "fairness": {"recipe": [TRADES, "desk/digits/wat"]},
    "features": {"recipe": [f"robust={MADRY}", "desk/digits/standard"], "eps": "0.5"},
    "homing": {"recipe": [MADRY], "classes": ["0", "1"]},
    "hypersphere": {"recipe": [MADRY, "desk/digits/he"]},
    "universality": {"recipe": [MADRY], "vary": ["train.batch=32"]},
    "weight": {"recipe": TRADES, "class_name": ["1"]},
    "worst-class": {"base": TRADES, "tuned": [TRADES, "desk/digits/csl"], "scratch": [MADRY]},
}


def jobs(name: str, **options: Any) -> list[StudyJob]:
    return studies.parse(name, {**OPTIONS.get(name, {"recipe": [MADRY]}), **options}).jobs()


def threats(made: list[StudyJob]) -> set[tuple[str, float]]:
    """The norm and radius of every job that attacks."""
    found = [(job.options.get("norm", "linf"), job.eps) for job in made if isinstance(job, AuditJob)]
    found += [
        (job.arguments.get("norm", "linf"), job.arguments["eps"])
        for job in made
        if isinstance(job, DeriveJob) and "eps" in job.arguments and not job.function.endswith(":build")
    ]
    return {(norm, float(eps)) for norm, eps in found}


@for_each("name", studies.names())
def test_every_study_attacks_as_its_models_were_trained(name: str) -> None:
    made = jobs(name, set=L2)
    assert threats(made) == {("l2", 0.5)}
    for job in made:
        if isinstance(job, TrainJob):
            assert load(job.recipe, job.changes).threat.norm == "l2"


@for_each("name", studies.names())
def test_every_study_takes_another_norm(name: str) -> None:
    made = jobs(name, norm="l2", eps="0.7", **({"part": "white"} if name == "background" else {}))
    assert threats(made) == {("l2", 0.7)}


@for_each("name", sorted({*studies.names()} - {"features"}))
def test_a_linf_job_is_written_as_before_there_was_a_norm(name: str) -> None:
    for job in jobs(name, **({"part": "white"} if name == "background" else {})):
        settings = job.settings()
        assert "norm" not in {**settings, **settings.get("options", {}), **settings.get("arguments", {})}


def test_the_pool_finds_linf_jobs_made_before_and_no_l2_ones() -> None:
    """The digest is that of a version whose jobs knew no norm."""
    digests = {}
    for norm in ("linf", "l2"):
        model = from_recipe("madry", MADRY, (), Setting(eps="0.15", norm=norm))  # type: ignore[arg-type]
        graph = Graph.of([*model.jobs, model.audit("audit", ["pgd-20"], per_class=5, seed=0)])
        digests[norm] = graph.digest("madry-audit")
    assert digests["linf"] == "dd38c982"
    assert digests["l2"] != digests["linf"]


def test_a_radius_of_one_norm_is_none_of_another() -> None:
    with pytest.raises(UserError, match=r"trained in linf with eps 0\.15, which is no radius in l2: give --eps"):
        jobs("weight-norm", norm="l2")
    with pytest.raises(UserError, match="did you mean 'l2'"):
        jobs("weight-norm", norm="l_2", eps="0.5")


def test_a_model_that_tells_of_no_threat_needs_both(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"")
    for given, missing in (
        ({"eps": "0.5", "data": "digits"}, "give --norm"),
        ({"norm": "l2"}, "give --data, --eps"),
        ({}, "give --data, --eps, --norm"),
    ):
        with pytest.raises(UserError, match=f"at which radius and in which norm: {missing}\\."):
            find_models([str(path)], [], [], Setting(**given))
    (found,) = find_models([str(path)], [], [], Setting("digits", "0.5", "l2"))
    assert (found.threat.norm, found.threat.eps) == ("l2", 0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a training in L2."""
    out = tmp_path_factory.mktemp("l2") / "round"
    cw.train(MADRY, out=out, changes=[*QUICK, *L2], progress=False)
    return out


@pytest.mark.slow
def test_a_given_model_is_attacked_in_its_norm(run: Path, tmp_path: Path) -> None:
    options = {"model": [str(run)], "per_class": 3, "attack": "pgd:steps=2,step=0.5"}
    studies.run(studies.parse("relations", options), tmp_path / "out")
    records = cw.Audit.load(tmp_path / "out/jobs/round-audit").rows()
    assert (records.meta.norm, records.meta.eps) == ("l2", 0.5)
    assert 0.4 < records.frame["distance"].max() <= 0.5 + 1e-5


@pytest.mark.slow
def test_adversarial_features_are_made_in_l2(run: Path, tmp_path: Path) -> None:
    """The vectors of a map are those of images that the attack itself made in that ball."""
    images = cw.load_data("digits", split="test").subset(per_class=2, seed=0)
    module = cw.load_model(str(run / "best.pt"))
    threat = cw.Threat("l2", 0.5)
    vectors = tsne._vectors(module, images, threat, "pgd:steps=2,step=0.5,start=none", 0)
    x, y = images.batch(np.arange(len(images)))
    (attack,) = parse("pgd:steps=2,step=0.5,start=none").values()
    made = craft(attack, module, x, y, Threat("l2", 0.5))
    assert 0.4 < BALLS["l2"].norm(made - x).max() <= 0.5 + 1e-5
    np.testing.assert_allclose(vectors["adversarial"], tsne.penultimate(module)(made).detach().double(), atol=1e-5)
    maps = []
    for number, given in enumerate(({"norm": "l2"}, {})):
        (tmp_path / str(number)).mkdir()
        tsne.mapped(
            tmp_path / str(number), Environment(), str(run / "best.pt"), "digits", "0.5", "pgd-2", 2, 3.0, 3, 0, **given
        )
        maps.append(pd.read_csv(tmp_path / str(number) / "map.csv").query("kind == 'adversarial'"))
    assert not np.allclose(maps[0]["silhouette_class"], maps[1]["silhouette_class"])


@pytest.mark.slow
def test_temperature_starts_and_follows_in_l2(run: Path, tmp_path: Path) -> None:
    options = {"model": [str(run)], "per_class": 3, "attack": "pgd:steps=3,start=none", "inv_temperature": "5"}
    studies.run(studies.parse("temperature", options), tmp_path)
    audit = cw.Audit.load(tmp_path / "jobs/round-temperature")
    assert audit.records.meta.norm == "l2"
    steps = pd.read_csv(tmp_path / "jobs/round-path/path.csv").query("attack == 'PGD'")
    images = cw.load_data("digits", split="test")
    x, y = images.batch(np.flatnonzero(images.positions == steps["image"].iloc[0]))
    module = cw.load_model(str(run / "best.pt"))
    (attack,) = parse("pgd:steps=3,step=0.125,start=none").values()
    point = craft(attack, module, x, y, Threat("l2", 0.5))
    last = steps[steps["step"] == 3]["probability"].to_numpy()
    np.testing.assert_allclose(last, module(point)[0].softmax(0).detach(), atol=1e-5)
