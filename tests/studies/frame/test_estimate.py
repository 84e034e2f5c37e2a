"""What a dry run says: the graph, shared probes, and times worked out by hand."""

from __future__ import annotations

import io
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from classwise import load_model
from classwise.studies.frame import estimate as estimates
from classwise.studies.frame.engines import Resources
from classwise.studies.frame.estimate import Measured, Totals, estimate, probe, sentence, show, totals
from classwise.studies.frame.graph import Audit, Derive, Graph, Job, Train
from classwise.studies.frame.work import Desk, Place

SMALL = ("train.epochs=3", "data.per_class=24", "data.validation=4", "method.steps=1", "validate.attack=pgd-1")


def desk_of(folder: Path, *jobs: Job) -> Desk:
    return Desk(folder, Graph.of(jobs), Place())


def finish(desk: Desk, name: str, seconds: float) -> None:
    folder = desk.folder_of(name)
    folder.mkdir(parents=True)
    about = {"job": desk.graph.jobs[name].settings(), "seconds": seconds, "megabytes": 100.0}
    (folder / "job.json").write_text(json.dumps(about))


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that are probed; each is found to take 10 s."""
    probed: list[str] = []

    def measure(desk: Desk, job: Job, *settings: Any) -> Measured:
        probed.append(job.name)
        return Measured(10.0, 200.0, "measured")

    monkeypatch.setattr(estimates, "_measure", measure)
    return probed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that goes on by a second whenever it is looked at."""
    ticks = itertools.count()
    monkeypatch.setattr(estimates, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))


def test_alike_jobs_share_a_probe(probes: list[str], tmp_path: Path) -> None:
    alike = [
        ("train.seed=7",),
        ("data.exclude=[]", "train.optimizer=sgd:lr=0.3"),
        ("threat.eps=0.1", "method.step=0.01"),
    ]
    other = [("method.steps=3",), ("data.exclude=['4']",), ("data.exclude=['5']",), ("model.spec=smallcnn",)]
    trainings = [Train(f"t{n}", "desk/digits/madry", changes) for n, changes in enumerate([(), *alike, *other])]
    audits = [Audit(f"a{n}", f"{{t{n}}}/best.pt", "digits", ("pgd-20",), options={"seed": n}) for n in (0, 1, 4)]
    frame = estimate(desk_of(tmp_path, *trainings, *audits), Resources())
    assert probes == ["t0", "t4", "t5", "t7", "a0", "a4"]
    assert (frame["seconds"] == 10).all()
    assert not list(tmp_path.iterdir())


def test_what_finished_jobs_took_is_known(probes: list[str], tmp_path: Path) -> None:
    trainings = [Train(f"t{seed}", "desk/digits/madry", (f"train.seed={seed}",)) for seed in range(3)]
    norms = [Derive(f"n{n}", "m:f", {"model": f"{{t{n}}}/best.pt"}) for n in range(3)]
    desk = desk_of(tmp_path, *trainings, *norms, Derive("other", "m:g"))
    finish(desk, "t0", 50.0)
    finish(desk, "t1", 70.0)
    finish(desk, "n0", 2.0)
    rows = estimate(desk, Resources()).set_index("job")
    assert probes == ["other"]
    assert rows.loc["t2", "seconds"] == 70
    assert rows.loc["t2", "basis"] == "as t1 took"
    assert rows.loc["n2", "seconds"] == 2
    assert rows["state"].to_dict() | {} == {
        "t0": "finished", "t1": "finished", "n0": "finished", "t2": "to do", "n1": "to do", "n2": "to do",
        "other": "to do",
    }  # fmt: skip
    assert rows.loc["n2", "waits for"] == "t2"


def plan(*rows: tuple[str, str, float], finished: tuple[str, ...] = ()) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"job": job, "kind": "train", "waits for": after, "state": "finished" if job in finished else "to do",
             "seconds": seconds, "megabytes": 10 * seconds, "basis": "measured"}
            for job, after, seconds in rows
        ]
    )  # fmt: skip


def test_totals_of_a_graph_worked_out_by_hand() -> None:
    frame = plan(("a", "", 4), ("b", "", 3), ("c", "", 2), ("d", "a, b", 5), ("e", "c", 6))
    # Two at once: a and b at 0; c at 3, when b is done, till 5; d at 4, with a, till 9; e at 5 till 11.
    assert totals(frame, 2) == Totals(alone=20, together=11, chain=9, megabytes=60, unknown=0)
    assert totals(frame, 1).together == 20
    assert totals(frame, 9).together == 9
    later = plan(*frame[["job", "waits for", "seconds"]].itertuples(index=False), finished=("a", "b", "c"))
    assert totals(later, 2) == Totals(alone=11, together=6, chain=6, megabytes=60, unknown=0)


def test_what_is_unknown_is_said_and_not_counted() -> None:
    total = totals(plan(("a", "", 100), ("b", "a", math.nan)), 2)
    assert (total.alone, total.chain, total.unknown) == (100, 100, 1)
    assert sentence(total, 2) == (
        "About 2 min one after the other, 2 min with 2 at once (the longest chain takes 2 min); 1000 MB of memory for "
        "the largest job; not counted: 1 jobs of which nothing is known."
    ).replace("1000 MB", "1.0 GB")
    assert sentence(totals(plan(("a", "", 1), finished=("a",)), 1), 1) == "Everything is finished."


def test_the_table_shows_every_job() -> None:
    console = Console(file=io.StringIO(), width=120)
    show(plan(("one", "", 7200), ("two", "one", math.nan)), Resources(), console)
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()[1:3]
    assert first.split() == ["one", "train", "to", "do", "2.0", "h", "70.3", "GB", "measured"]
    assert second.split() == ["two", "train", "one", "to", "do", "?", "?", "measured"]


@pytest.mark.usefixtures("clock")
def test_a_training_is_its_steps_validations_and_checkpoints(tmp_path: Path) -> None:
    """200 images train in batches of 64, 40 are held out; every step, validation and checkpoint takes a second."""
    desk = desk_of(tmp_path, Train("t", "desk/digits/madry", SMALL))
    reading, epochs, validations, checkpoints = 1, 3 * 200 / 64, 3, 2 * 3
    found = probe(desk, "t", seconds=1e9)
    assert found.seconds == reading + epochs + validations + checkpoints
    assert found.basis == "measured"
    assert found.megabytes > 50


@pytest.mark.usefixtures("clock")
def test_an_audit_is_what_some_images_took_times_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def audit(model: str, images: Any, attacks: list[str], eps: float, **options: Any) -> Any:
        assert load_model(model)(images.batch([0])[0]).shape == (1, 10)
        asked.append({"images": len(images), "attacks": attacks, "eps": eps, **options})
        attacked = {"clean": {"seconds": len(images) / 128}, "pgd-20": {"seconds": 3 * len(images) / 128}}
        return SimpleNamespace(timing={"wall_seconds": 2 + len(images) / 32, "attacks": attacked})

    monkeypatch.setattr("classwise.evaluation.audit.audit", audit)
    training = Train("t", "desk/digits/madry", SMALL)
    job = Audit("a", "{t}/best.pt", "digits", ("pgd-20",), 0.1, {"per_class": 20, "seed": 3, "protocol": "any"})
    found = probe(desk_of(tmp_path, training, job), "a", seconds=8.0)
    assert [call["images"] for call in asked] == [32, 128]  # 1 s was too little, 4 s are enough
    assert asked[0]["attacks"] == ["pgd-20"]
    assert asked[0]["seed"] == 3
    assert asked[0]["protocol"] == "final"  # untrained weights would be broken at the first step
    assert found.basis == "measured, at most"
    assert found.seconds == 1 + 2 + 200 / 32


def test_a_probe_in_a_process_of_its_own(tmp_path: Path) -> None:
    norms = Derive("n", "m:f", {"model": "{t}/best.pt"})
    jobs = [Audit("a", "{t}/best.pt", "digits", ("fgsm",), 0.1), Audit("b", "{n}/x.pt", "digits", ("fgsm",), 0.1)]
    desk = desk_of(tmp_path / "study", Train("t", "desk/digits/madry", SMALL), norms, *jobs)
    found = estimates._measure(desk, desk.graph.jobs["a"], Resources(cpus=1), 0.1, 600.0)
    assert found.basis == "measured, at most"
    assert 0 < found.seconds < 600
    assert 100 < found.megabytes < 5000
    assert not (tmp_path / "study").exists()
    assert estimates._measure(desk, jobs[1], Resources(), 0.1, 600.0).basis == "unknown: it reads what n leaves"
    assert estimates._measure(desk, norms, Resources(), 0.1, 600.0).basis == "unknown"


def test_a_probe_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, Train("t", "desk/digits/madry"))
    found = estimates._measure(desk, desk.graph.jobs["t"], Resources(), 1.0, limit=0.01)
    assert math.isnan(found.seconds)
    assert found.basis == "unknown: not measured within 0.01 s"


def test_a_probe_that_cannot_be_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, Graph.of([Train("t", "desk/cifar10/madry")]), Place(root=str(tmp_path / "nowhere")))
    order = json.dumps({"folder": str(tmp_path), "desk": desk.about(), "name": "t", "seconds": 1.0, "begun": None})
    assert estimates.main(lambda: order) == 2
    assert "nowhere" in capsys.readouterr().err.strip().splitlines()[-1]
