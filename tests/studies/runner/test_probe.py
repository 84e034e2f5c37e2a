"""What a short measurement of one job finds."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_jobs import planned

from classwise import load_model
from classwise.auditing.config import AuditConfig
from classwise.dispatch import Resources
from classwise.studies.runner import estimate as estimates
from classwise.studies.runner import probe as probes
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, TrainJob
from classwise.studies.runner.probe import probe
from classwise.studies.runner.work import Environment, Workspace

SMALL = ("train.epochs=3", "data.per_class=24", "data.validation=4", "method.steps=1", "validate.attack=pgd-1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that goes on by a second whenever it is looked at."""
    ticks = itertools.count()
    monkeypatch.setattr(probes, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))


@pytest.mark.usefixtures("clock")
def test_a_training_is_its_steps_validations_and_checkpoints(tmp_path: Path) -> None:
    """200 images train in batches of 64, 40 are held out; every step, validation and checkpoint takes a second."""
    workspace = planned(tmp_path, TrainJob("t", "desk/digits/madry", SMALL))
    reading, epochs, validations, checkpoints = 1, 3 * 200 / 64, 3, 2 * 3
    found = probe(workspace, "t", seconds=1e9)
    assert found.seconds == reading + epochs + validations + checkpoints
    assert found.basis == "measured"
    assert found.megabytes > 50


@pytest.mark.parametrize("checkpoint", ["best.pt", "epochs/0002.pt"])
@pytest.mark.usefixtures("clock")
def test_an_audit_is_what_some_images_took_times_all(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def audit(config: AuditConfig) -> Any:
        images = config.data.name
        assert load_model(config.model.spec)(images.batch([0])[0]).shape == (1, 10)
        asked.append({"images": len(images), "per_class": config.data.per_class, **vars(config.attacks)})
        attacked = {"clean": {"seconds": len(images) / 128}, "pgd-20": {"seconds": 3 * len(images) / 128}}
        return SimpleNamespace(timing={"wall_seconds": 2 + len(images) / 32, "attacks": attacked})

    monkeypatch.setattr("classwise.auditing.audit.audit_by", audit)
    training = TrainJob("t", "desk/digits/madry", SMALL)
    options = {"per_class": 20, "seed": 3, "protocol": "any"}
    job = AuditJob("a", model=f"{{t}}/{checkpoint}", data="digits", attacks=("pgd-20",), eps=0.1, options=options)
    found = probe(planned(tmp_path, training, job), "a", seconds=8.0)
    assert [call["images"] for call in asked] == [32, 128]  # 1 s was too little, 4 s are enough
    assert asked[0]["attacks"] == ["pgd-20"]
    assert asked[0]["per_class"] is None
    assert asked[0]["seed"] == 3
    assert asked[0]["protocol"] == "final"  # untrained weights would be broken at the first step
    assert found.basis == "measured, at most"
    assert found.seconds == 1 + 2 + 200 / 32


@pytest.mark.slow
def test_a_probe_in_a_process_of_its_own(tmp_path: Path) -> None:
    norms = DeriveJob("n", "m:f", {"model": "{t}/best.pt"})
    models = {"a": "{t}/best.pt", "b": "{n}/x.pt"}
    jobs = [AuditJob(name, model=own, data="digits", attacks=("fgsm",), eps=0.1) for name, own in models.items()]
    workspace = planned(tmp_path / "study", TrainJob("t", "desk/digits/madry", SMALL), norms, *jobs)
    found = estimates._measure(workspace, workspace.graph.jobs["a"], Resources(cpus=1), 0.1, 600.0)
    assert found.basis == "measured, at most"
    assert 0 < found.seconds < 600
    assert 100 < found.megabytes < 5000
    assert not (tmp_path / "study").exists()
    assert estimates._measure(workspace, jobs[1], Resources(), 0.1, 600.0).basis == "unknown: it reads the files of n"
    assert estimates._measure(workspace, norms, Resources(), 0.1, 600.0).basis == "unknown"


@pytest.mark.slow
def test_a_probe_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    workspace = planned(tmp_path, TrainJob("t", "desk/digits/madry"))
    found = estimates._measure(workspace, workspace.graph.jobs["t"], Resources(), 1.0, limit=0.1)
    assert math.isnan(found.seconds)
    assert found.basis == "unknown: not measured within 0.1 s"


def test_a_probe_that_cannot_be_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(
        tmp_path, Graph.of([TrainJob("t", "desk/cifar10/madry")]), Environment(root=str(tmp_path / "nowhere"))
    )
    order = json.dumps(
        {"folder": str(tmp_path), "workspace": workspace.about(), "name": "t", "seconds": 1.0, "begun": None}
    )
    assert probes.main(lambda: order) == 2
    assert "nowhere" in capsys.readouterr().err.strip().splitlines()[-1]
