"""A study through submitit, whose local stand-in takes the place of a cluster; run by `make test-adapters`."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from classwise.core.errors import UserError
from classwise.dispatch import Resources, slurm
from classwise.studies.runner.engines import drive, engine
from classwise.studies.runner.graph import DeriveJob, Graph
from classwise.studies.runner.work import Environment, Workspace

pytestmark = [pytest.mark.adapters, pytest.mark.slow]
submitit: Any = pytest.importorskip("submitit", reason='submitit is not installed: pip install "classwise[slurm]"')

ERRANDS = """
import os, time
from classwise.core.errors import UserError

def note(folder, environment, after="", wait=0.0):
    with (folder / "calls.txt").open("a") as sink:
        sink.write(f"{os.getpid()}\\n")
    time.sleep(wait if len((folder / "calls.txt").read_text().splitlines()) == 1 else 0.0)

def refuse(folder, environment):
    raise UserError("this cannot be done")
"""


@pytest.fixture(autouse=True)
def errands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "errands_of_slurm.py").write_text(ERRANDS)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    monkeypatch.setattr(slurm, "_POLL", 0.1)


def desk_of(folder: Path, *jobs: DeriveJob) -> Workspace:
    return Workspace.begin(folder / "study", Graph.of(jobs), Environment())


def test_jobs_go_through_submitit_and_a_failure_holds_up_only_its_own(tmp_path: Path) -> None:
    jobs = [
        DeriveJob("first", "errands_of_slurm:note"),
        DeriveJob("after", "errands_of_slurm:note", {"after": "{first}"}),
        DeriveJob("bad", "errands_of_slurm:refuse"),
        DeriveJob("never", "errands_of_slurm:note", {"after": "{bad}"}),
    ]
    workspace = desk_of(tmp_path, *jobs)
    with (
        pytest.raises(UserError, match=r"1 of 4 jobs failed:\n  bad: this cannot be done"),
        engine("slurm:cluster=local,time=5", workspace, Resources()) as submit,
    ):
        list(drive(workspace, submit))
    assert workspace.finished(workspace.graph.jobs["after"]) is not None
    assert not workspace.folder_of("never").exists()
    assert list((workspace.folder / "slurm").glob("*_submitted.pkl"))


def test_a_job_whose_time_is_up_is_queued_again(tmp_path: Path) -> None:
    """SLURM tells a job so by SIGUSR2; submitit then asks for what is to be queued."""
    workspace = desk_of(tmp_path, DeriveJob("long", "errands_of_slurm:note", {"wait": 600.0}))
    calls = workspace.folder_of("long") / "calls.txt"

    def time_is_up() -> None:
        end = time.monotonic() + 300
        while not (calls.exists() and calls.read_text().endswith("\n")) and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(int(calls.read_text()), signal.SIGUSR2)

    clock = threading.Thread(target=time_is_up)
    clock.start()
    with engine("slurm:cluster=local", workspace, Resources()) as submit:
        assert list(drive(workspace, submit)) == ["long"]
    clock.join()
    first, second = calls.read_text().split()
    assert first != second


def test_options_reach_sbatch_by_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that sbatch would get, on a machine that only looks as if it had SLURM."""
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 2))
    workspace = desk_of(tmp_path, DeriveJob("a", "m:f"))
    spec = "slurm:partition=gpu,time=90,mail-type=END"
    executor = slurm._executor(spec, workspace.folder, Resources(cpus=4, gpus=0.5))._executor
    script = executor._make_submission_file_text("run", "1")
    for line in ("partition=gpu", "time=90", "mail-type=END", "cpus-per-task=4", "gpus-per-node=1"):
        assert f"#SBATCH --{line}\n" in script
    assert executor.max_num_timeout == 100


def test_no_slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: -1))
    workspace = desk_of(tmp_path, DeriveJob("a", "m:f"))
    with pytest.raises(UserError, match="slurm:cluster=local"), engine("slurm", workspace, Resources()):
        pass
    with pytest.raises(UserError, match="not of the form key=value"), engine("slurm:gpu", workspace, Resources()):
        pass
    with pytest.raises(UserError, match="time"), engine("slurm:time=soon", workspace, Resources()):
        pass
