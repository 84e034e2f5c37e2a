"""Engines: what runs when, what is tried again, what a failure holds up, and who is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from classwise.core.errors import UserError
from classwise.dispatch import Resources, names
from classwise.results.audit_result import Audit
from classwise.studies.runner.engines import drive, engine
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph
from classwise.studies.runner.work import Environment, Workspace
from command_processes import running, wait_until

NET = """
import torch
from torch import nn

def make(num_classes, in_channels):
    net = nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, num_classes))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return net
"""
ERRANDS = """
import os, signal, time
from classwise.core.errors import UserError

def note(folder, environment, after="", wait=0.0):
    with (folder / "calls.txt").open("a") as sink:
        sink.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n")
    time.sleep(wait)

def refuse(folder, environment):
    raise UserError("this cannot be done:\\n  give it up")

def die_once(folder, environment):
    note(folder, environment)
    if not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

def die(folder, environment):
    note(folder, environment)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def errands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of functions for jobs, here and in processes that are started."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "errands_of_engines.py").write_text(ERRANDS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def errand(name: str, function: str = "note", **arguments: object) -> DeriveJob:
    return DeriveJob(name, f"errands_of_engines:{function}", arguments)


def desk_of(folder: Path, *jobs: DeriveJob) -> Workspace:
    return Workspace.begin(folder / "study", Graph.of(jobs), Environment())


def calls(workspace: Workspace, name: str) -> list[list[str]]:
    path = workspace.folder_of(name) / "calls.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def run(workspace: Workspace, resources: Resources, spec: str = "local") -> list[str]:
    with engine(spec, workspace, resources) as submit:
        return list(drive(workspace, submit))


def test_in_this_process_jobs_are_told_as_they_finish(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("a"), errand("b"), errand("c", after="{a}"))
    with engine("local", workspace, Resources()) as submit:
        seen = []
        for name in drive(workspace, submit):
            seen.append((name, [other for other in "abc" if calls(workspace, other)]))
    assert seen[0] == ("a", ["a"])  # b had not begun when a was told
    assert [name for name, _ in seen] == ["a", "b", "c"]
    assert {pid for name in "abc" for pid, _ in calls(workspace, name)} == {str(os.getpid())}
    assert run(workspace, Resources()) == []


def test_what_can_start_first_in_the_study_starts_first(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("a"), errand("z", after="{a}"), errand("b"), errand("y", after="{b}"))
    assert list(workspace.graph.jobs) == ["a", "z", "b", "y"]
    assert run(workspace, Resources()) == ["a", "z", "b", "y"]  # not a, b, z, y: what a study begins it ends


def test_no_more_than_asked_for_are_submitted_at_once(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("a"), errand("z", after="{a}"), errand("b"), errand("c"))
    futures: list[Future[str | None]] = []
    with ThreadPoolExecutor(1) as pool:

        def submit(name: str) -> Future[str | None]:
            assert sum(not future.done() for future in futures) < 1
            futures.append(pool.submit(time.sleep, 0.02))
            return futures[-1]

        assert list(drive(workspace, submit, 1)) == ["a", "z", "b", "c"]


@pytest.mark.slow
def test_a_failure_holds_up_only_what_needs_it_and_a_killed_process_is_replaced(tmp_path: Path) -> None:
    jobs = [errand("good", "die_once"), errand("after", after="{good}"), errand("bad", "refuse")]
    workspace = desk_of(tmp_path, *jobs, errand("never", after="{bad}"), errand("mortal", "die"))
    with pytest.raises(UserError, match="2 of 5 jobs failed") as failure:
        run(workspace, Resources(jobs=2, cpus=3, retries=1))
    words = str(failure.value)
    assert "bad: this cannot be done:\n  give it up" in words
    assert "mortal: its process was killed 2 times" in words
    assert "the same command resumes" in words
    assert [len(calls(workspace, name)) for name in ("good", "after", "never", "mortal")] == [2, 1, 0, 2]
    assert {threads for _, threads in calls(workspace, "good")} == {"3"}
    pids = {pid for name in ("good", "after", "mortal") for pid, _ in calls(workspace, name)}
    assert len(pids) == 5
    assert str(os.getpid()) not in pids
    assert (workspace.folder_of("bad") / "log.txt").read_text().startswith("error: this cannot be done")


def test_one_job_after_the_other_a_failure_is_told_too(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("bad", "refuse"), errand("never", after="{bad}"), errand("good"))
    with pytest.raises(UserError, match=r"1 of 3 jobs failed:\n  bad: this cannot be done"):
        run(workspace, Resources())
    assert calls(workspace, "good")


# Whoever starts the tests in the background may have them, and all they start, ignore SIGINT.
STUDY = """
import signal, sys
from pathlib import Path
from classwise.dispatch import Resources
from classwise.studies.runner.engines import drive, engine
from classwise.studies.runner.work import Workspace
signal.signal(signal.SIGINT, signal.default_int_handler)
workspace = Workspace.read(Path(sys.argv[1]))
with engine("local", workspace, Resources(jobs=2)) as submit:
    print("begun", flush=True)
    list(drive(workspace, submit))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_study_stops_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    workspace = desk_of(tmp_path, errand("a", wait=120.0), errand("b", wait=120.0), errand("c", wait=120.0))
    study = subprocess.Popen([sys.executable, "-c", STUDY, str(workspace.folder)], stderr=subprocess.DEVNULL)
    wait_until(lambda: bool(calls(workspace, "a")) and bool(calls(workspace, "b")))
    children = [int(calls(workspace, name)[0][0]) for name in ("a", "b")]
    assert all(map(running, children))
    os.kill(study.pid, number)
    assert study.wait(300) == -number
    wait_until(lambda: not any(map(running, children)))
    assert calls(workspace, "c") == []
    assert not list(workspace.folder.rglob("job.json"))


def test_an_unknown_engine_names_the_near_miss(tmp_path: Path) -> None:
    assert names() == ["local", "ray", "slurm", "torchrun"]
    with pytest.raises(UserError, match="unknown engine 'slrum'; did you mean 'slurm'"):
        engine("slrum:partition=gpu", desk_of(tmp_path, errand("a")), Resources())
    with (
        pytest.raises(UserError, match="takes nothing after a colon"),
        engine("local:4", desk_of(tmp_path), Resources()),
    ):
        pass


@pytest.mark.parametrize(("spec", "package"), [("ray", "ray"), ("ray://host:1", "ray"), ("slurm", "submitit")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    expected = rf'package {package}: pip install "classwise\[{spec.partition(":")[0]}\]"'
    with pytest.raises(UserError, match=expected), engine(spec, desk_of(tmp_path, errand("a")), Resources()):
        pass


def test_threads_are_shared_evenly_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [Resources(jobs=jobs).threads for jobs in (1, 3, 20)] == [8, 2, 1]
    assert Resources(jobs=2, cpus=5).threads == 5


@pytest.mark.slow
def test_an_audit_of_a_study_in_shards(tmp_path: Path) -> None:
    net = tmp_path / "modules" / "net_of_engines.py"
    net.write_text(NET)
    jobs = [
        AuditJob("audit", model=f"{net}:make", data="digits", attacks=("pgd-2",), options={"per_class": 6}),
        errand("after", after="{audit}"),
    ]
    tables = []
    for folder, shards in (("one", 1), ("three", 3)):
        workspace = Workspace.begin(tmp_path / folder, Graph.of(jobs), Environment())
        with engine("local", workspace, Resources(jobs=2, cpus=1), shards) as submit:
            assert list(drive(workspace, submit)) == ["audit", "after"]
        tables.append(Audit.load(workspace.folder_of("audit")).by_class())
        assert len(list(workspace.folder_of("audit").glob("records/00-*"))) == shards
        assert workspace.finished(workspace.graph.jobs["audit"]) is not None
    assert tables[0].equals(tables[1])
    with pytest.raises(UserError, match="--shards must be at least 1"):
        engine("local", workspace, Resources(), 0)
