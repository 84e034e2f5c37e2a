"""What a dry run says: the graph, shared probes, and times worked out by hand."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from small_jobs import planned

from classwise.dispatch import Resources
from classwise.studies.runner import estimate as estimates
from classwise.studies.runner.estimate import Totals, estimate, sentence, show, totals
from classwise.studies.runner.graph import AuditJob, DeriveJob, StudyJob, TrainJob
from classwise.studies.runner.probe import Measured
from classwise.studies.runner.work import Workspace

SMALL = ("train.epochs=3", "data.per_class=24", "data.validation=4", "method.steps=1", "validate.attack=pgd-1")


def finish(workspace: Workspace, name: str, seconds: float) -> None:
    folder = workspace.folder_of(name)
    folder.mkdir(parents=True)
    about = {"job": workspace.graph.jobs[name].settings(), "seconds": seconds, "megabytes": 100.0}
    (folder / "job.json").write_text(json.dumps(about))


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that are probed; each is found to take 10 s."""
    probed: list[str] = []

    def measure(workspace: Workspace, job: StudyJob, *settings: Any) -> Measured:
        probed.append(job.name)
        return Measured(10.0, 200.0, "measured")

    monkeypatch.setattr(estimates, "_measure", measure)
    return probed


def test_alike_jobs_share_a_probe(probes: list[str], tmp_path: Path) -> None:
    alike = [
        ("train.seed=7",),
        ("data.exclude=[]", "train.optimizer=sgd:lr=0.3"),
        ("threat.eps=0.1", "method.step=0.01"),
    ]
    other = [("method.steps=3",), ("data.exclude=['4']",), ("data.exclude=['5']",), ("model.spec=smallcnn",)]
    trainings = [TrainJob(f"t{n}", "desk/digits/madry", changes) for n, changes in enumerate([(), *alike, *other])]
    pgd: dict[str, Any] = {"data": "digits", "attacks": ("pgd-20",)}
    audits = [AuditJob(f"a{n}", model=f"{{t{n}}}/best.pt", **pgd, options={"seed": n}) for n in (0, 1, 4)]
    for n in (5, 6):
        audits.append(AuditJob(f"a{n}", model=f"{{t{n}}}/best.pt", **{**pgd, "data": f"digits:exclude={n - 1}"}))
    audits += [AuditJob("b0", model="m.pt", **pgd), AuditJob("b1", model="m.pt", **{**pgd, "data": "digits:exclude=1"})]
    frame = estimate(planned(tmp_path, *trainings, *audits), Resources())
    assert sorted(probes) == ["a0", "a4", "a5", "b0", "b1", "t0", "t4", "t5", "t7"]
    assert (frame["seconds"] == 10).all()
    assert not list(tmp_path.iterdir())


def test_what_finished_jobs_took_is_known(probes: list[str], tmp_path: Path) -> None:
    trainings = [TrainJob(f"t{seed}", "desk/digits/madry", (f"train.seed={seed}",)) for seed in range(3)]
    norms = [DeriveJob(f"n{n}", "m:f", {"model": f"{{t{n}}}/best.pt"}) for n in range(3)]
    workspace = planned(tmp_path, *trainings, *norms, DeriveJob("other", "m:g"))
    finish(workspace, "t0", 50.0)
    finish(workspace, "t1", 70.0)
    finish(workspace, "n0", 2.0)
    rows = estimate(workspace, Resources()).set_index("job")
    assert probes == ["other"]
    assert rows.loc["t2", "seconds"] == 70
    assert rows.loc["t2", "basis"] == "as t1 took"
    assert rows.loc["n2", "seconds"] == 2
    assert rows["state"].to_dict() | {} == {
        "t0": "finished", "t1": "finished", "n0": "finished", "t2": "to do", "n1": "to do", "n2": "to do",
        "other": "to do",
    }  # fmt: skip
    assert rows.loc["n2", "waits for"] == "t2"


def test_without_time_to_probe_what_is_counted_counts(probes: list[str], tmp_path: Path) -> None:
    trainings = [TrainJob(f"t{n}", "desk/digits/madry", (f"method.steps={n}",)) for n in (1, 2, 3)]
    workspace = planned(tmp_path, *trainings, DeriveJob("norms", "m:f"))
    told: list[str] = []
    finish(workspace, "t1", 50.0)
    count = {"t2": 7.0}  # of a finished job nothing is counted
    rows = estimate(workspace, Resources(), budget=0, count=lambda job: count.get(job.name), watch=told.append)
    assert probes == told == []
    assert dict(zip(rows["job"], rows["basis"], strict=True)) == {
        "t1": "took", "t2": "counted", "t3": "unknown", "norms": "unknown",
    }  # fmt: skip
    assert rows.set_index("job").loc["t2", "seconds"] == 7
    assert totals(rows, 1) == Totals(
        alone=7.0, together=7.0, chain=7.0, megabytes=pytest.approx(math.nan, nan_ok=True), unknown=2
    )


def test_probes_stop_when_their_time_together_is_spent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = iter([0.0, 0.0, 40.0, 70.0])  # the beginning, then before each job
    limits: list[float] = []

    def measure(
        workspace: Workspace, job: StudyJob, resources: Resources, seconds: float, limit: float, zoo: None
    ) -> Measured:
        limits.append(limit)
        return Measured(10.0, 200.0, "measured")

    monkeypatch.setattr(estimates, "_measure", measure)
    monkeypatch.setattr(estimates.time, "monotonic", lambda: next(clock))
    trainings = [TrainJob(f"t{n}", "desk/digits/madry", (f"method.steps={n}",)) for n in (1, 2, 3)]
    told: list[str] = []
    rows = estimate(planned(tmp_path, *trainings), Resources(), limit=50.0, budget=60.0, watch=told.append)
    assert told == ["t1", "t2"]
    assert limits == [50.0, 20.0]  # the second has what is left
    assert list(rows["basis"]) == ["measured", "measured", "unknown"]


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
        "the largest job; not counted: 1 jobs of unknown cost."
    ).replace("1000 MB", "1.0 GB")
    assert sentence(totals(plan(("a", "", 1), finished=("a",)), 1), 1) == "Everything is finished."


def test_the_table_shows_every_job() -> None:
    console = Console(file=io.StringIO(), width=120)
    show(plan(("one", "", 7200), ("two", "one", math.nan)), Resources(), console)
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()[1:3]
    assert first.split() == ["one", "train", "to", "do", "2.0", "h", "70.3", "GB", "measured"]
    assert second.split() == ["two", "train", "one", "to", "do", "?", "?", "measured"]
