"""Repaired models in the zoo: added after the model that was repaired, and found again by a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import classwise as cw
from classwise.core.run_folder import TrainingFolder
from classwise.models import zoo
from classwise.results import submissions
from classwise.studies.runner import from_zoo
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, TrainJob
from classwise.studies.runner.work import Environment, Workspace
from classwise.training import recipe
from classwise.zoo import adding, checking
from classwise.zoo.matching import find
from small_zoo import CHANGES, NAME, made_training

REPAIRED = "digits/resnet2/trades_repaired-0"
FUNCTION = "classwise.studies.worst_class.repaired:repaired"


def job(model: str = "{trades}/best.pt", **changes: Any) -> DeriveJob:
    arguments = {"recipe": "desk/digits/trades", "changes": CHANGES, "attack": None, "keep_average": 0.5, "eps": 0.15}
    return DeriveJob("repaired", FUNCTION, {"model": model, **arguments, **changes})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training, the repair of its model by a job of a study, and an audit of the repaired model."""
    folder = tmp_path_factory.mktemp("runs")
    best = TrainingFolder(made_training(folder / "trades")).best
    repaired = folder / "repaired"
    settings: Any = {"per_class": 6, "rounds": 1, "keep_average": 0.5, "progress": False}
    cw.repair(best, "digits", "pgd-2", 0.15, out=repaired, **settings)
    about = {"job": job().settings(), "seconds": 9.0, "megabytes": 1.0}
    (repaired / "job.json").write_text(json.dumps(about))
    cw.audit(repaired / "best.pt", "digits", ["pgd-2"], eps=0.15, limit=20, probs=False, out=folder / "audit")
    return folder


@pytest.fixture
def filled(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    adding.add(runs / "trades", NAME, tmp_path)
    adding.add(runs / "repaired", REPAIRED, tmp_path, audited=[runs / "audit"])
    monkeypatch.setenv(zoo.SETTING, str(tmp_path))
    return tmp_path


def test_an_entry(filled: Path, runs: Path) -> None:
    entry = zoo.open_zoo().entry(REPAIRED)
    about = entry.about["repaired"]
    assert (about["of"], about["knob"], about["keep_average"]) == (NAME, "bias", 0.5)
    assert about["job"] == {"function": FUNCTION, "keep_average": 0.5, "eps": 0.15}
    assert sum(about["bias"].values()) == pytest.approx(0, abs=1e-4)
    assert [entry.about[key] for key in ("method", "seed", "epochs")] == ["trades", 0, 2]
    assert entry.row["method"] == "trades, repaired"
    assert "trades, repaired on digits" in zoo.describe(REPAIRED)
    assert sorted(file for file in entry.files if "/" not in file) == ["best.pt", "config.toml", "entry.toml"]
    seconds = json.loads((runs / "repaired" / "repair.json").read_text())["seconds"]
    assert entry.about["cost"]["training_seconds"] == pytest.approx(seconds, abs=0.1)


def test_its_model_and_its_training(filled: Path, runs: Path) -> None:
    own, given = (cw.load_model(name).state_dict() for name in (f"zoo:{REPAIRED}", runs / "repaired" / "best.pt"))
    assert all(torch.equal(own[name], value) for name, value in given.items())
    assert zoo.run_of(f"zoo:{REPAIRED}").path == filled / NAME
    assert checking.check(zoo.open_zoo(), zoo.open_zoo().entry(REPAIRED)).wrong == ()


def test_nothing_of_one_machine_is_kept(filled: Path, runs: Path) -> None:
    for file in (filled / REPAIRED).rglob("*"):
        assert not file.is_file() or str(runs).encode() not in file.read_bytes()


def test_the_repaired_model_comes_second(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(cw.UserError, match="is not in the zoo: add that model first"):
        adding.add(runs / "repaired", REPAIRED, tmp_path / "zoo")
    adding.add(runs / "trades", NAME, tmp_path)
    with pytest.raises(cw.UserError, match="--as digits/NETWORK/trades_repaired-0"):
        adding.add(runs / "repaired", "digits/resnet2/repaired-1", tmp_path)


def test_a_recipe_does_not_find_it(filled: Path) -> None:
    (filled / NAME / "best.pt").unlink()
    assert find(recipe.load("desk/digits/trades", CHANGES), zoo.open_zoo()) is None


def test_a_study_takes_it_with_its_audits(filled: Path, tmp_path: Path) -> None:
    options = {"limit": 20, "probs": False}
    audit = AuditJob("audit", model="{repaired}/best.pt", data="digits", attacks=("pgd-2",), eps=0.15, options=options)
    graph = Graph.of([TrainJob("trades", "desk/digits/trades", CHANGES), job(), audit])
    names = from_zoo.in_zoo(graph)
    assert names == {"trades": NAME, "repaired": REPAIRED, "audit": f"{REPAIRED}/audits/pgd-2"}
    workspace = Workspace.begin(tmp_path / "study", graph, Environment())
    assert from_zoo.take(workspace, names) == names
    assert (workspace.folder_of("repaired") / "best.pt").read_bytes() == (filled / REPAIRED / "best.pt").read_bytes()
    assert all(workspace.finished(own) for own in graph)


def test_it_is_on_the_board_as_a_model_of_its_own(filled: Path) -> None:
    (one,) = submissions.read([filled])
    assert (one.name, one.method, one.seed) == (REPAIRED, "trades, repaired", 0)
    assert one.architecture == "resnet:width=2,blocks=[1]"
    assert one.seconds > 0
    assert "trades" in one.family


@pytest.mark.parametrize("change", [{"keep_average": 0.4}, {"eps": 0.1}, {"attack": "pgd-3"}])
def test_another_repair_is_not_found(filled: Path, change: dict[str, Any]) -> None:
    graph = Graph.of([TrainJob("trades", "desk/digits/trades", CHANGES), job(**change)])
    assert from_zoo.in_zoo(graph) == {"trades": NAME}
