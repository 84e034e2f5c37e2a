"""One job in its folder: done once, by one process at a time, and recognised by its settings."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from classwise import studies
from classwise.core.errors import UserError
from classwise.core.run_lock import writing
from classwise.studies.runner.graph import DeriveJob, Graph, StudyJob, TrainJob
from classwise.studies.runner.work import Environment, Workspace, peak_megabytes
from command_processes import running, wait_until

ERRANDS = """
import os, signal, time
from classwise.core.errors import UserError

def note(folder, environment, text="", wait=0.0):
    with (folder / "calls.txt").open("a") as sink:
        sink.write(f"{os.getpid()}\\n")
    time.sleep(wait)
    (folder / "result.txt").write_text(f"{text} {environment.root}")

def refuse(folder, environment):
    raise UserError("this cannot be done:\\n  give it up")

def stumble(folder, environment):
    raise KeyError("nobody foresaw this")
"""


@pytest.fixture
def errands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of functions for jobs, here and in processes that are started."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "errands_of_work.py").write_text(ERRANDS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def errand(name: str, function: str = "note", **arguments: object) -> DeriveJob:
    return DeriveJob(name, f"errands_of_work:{function}", arguments)


def desk_of(folder: Path, *jobs: StudyJob) -> Workspace:
    return Workspace.begin(folder, Graph.of(jobs), Environment())


def start(workspace: Workspace, name: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "classwise.studies.runner.work", str(workspace.folder), name, *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def calls(workspace: Workspace, name: str) -> list[str]:
    return (workspace.folder_of(name) / "calls.txt").read_text().split()


@pytest.mark.usefixtures("errands")
def test_a_finished_job_is_not_done_again(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path / "study", errand("one", text="x"))
    for _ in range(3):
        Workspace.read(tmp_path / "study").do("one")
    assert len(calls(workspace, "one")) == 1
    about = json.loads((workspace.folder_of("one") / "job.json").read_text())
    assert about["job"]["arguments"] == {"text": "x"}
    assert about["seconds"] >= 0


@pytest.mark.usefixtures("errands")
def test_other_settings_under_the_same_name_are_refused(tmp_path: Path) -> None:
    desk_of(tmp_path, errand("one", text="x")).do("one")
    other = desk_of(tmp_path, errand("one", text="y"))
    with pytest.raises(UserError, match=r"other settings:\n.*'x'.* there, .*'y'.* now"):
        other.do("one")
    with pytest.raises(UserError, match="other settings"):
        other.finished(other.graph.jobs["one"])


@pytest.mark.usefixtures("errands")
def test_jobs_find_the_data_and_each_other_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.begin(
        Path("study"), Graph.of([errand("a"), errand("b", text="{a}")]), Environment(root="data")
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Workspace.read(workspace.folder).do("b")
    written = (tmp_path / "study" / "jobs" / "b" / "result.txt").read_text()
    assert written == f"{tmp_path / 'study' / 'jobs' / 'a'} {tmp_path / 'data'}"


@pytest.mark.usefixtures("errands")
def test_what_went_wrong_is_said_in_words(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("no", "refuse"), errand("fall", "stumble"))
    assert workspace.attempt("no") == "this cannot be done:\n  give it up"
    words = workspace.attempt("fall")
    assert words is not None
    assert words.startswith("KeyError: 'nobody foresaw this' (see ")
    assert "in stumble" in (workspace.folder_of("fall") / "log.txt").read_text()
    assert workspace.finished(workspace.graph.jobs["no"]) is None


@pytest.mark.slow
@pytest.mark.usefixtures("errands")
def test_two_processes_do_not_do_the_same_job(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("one", wait=0.5))
    pair = [start(workspace, "one"), start(workspace, "one")]
    assert [child.wait(300) for child in pair] == [0, 0]
    assert len(calls(workspace, "one")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("errands")
def test_a_killed_process_leaves_the_job_to_the_next(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("one", wait=30.0))
    child = start(workspace, "one")
    wait_until((workspace.folder_of("one") / "calls.txt").exists)
    child.kill()
    assert child.wait(300) == -signal.SIGKILL
    assert workspace.finished(workspace.graph.jobs["one"]) is None
    again = start(workspace, "one")  # the dead one's claim on the folder is gone
    wait_until(lambda: len(calls(workspace, "one")) == 2)
    again.kill()
    again.wait(300)


@pytest.mark.slow
@pytest.mark.usefixtures("errands")
def test_a_job_leaves_with_the_process_that_started_it(tmp_path: Path) -> None:
    workspace = desk_of(tmp_path, errand("one", wait=30.0))
    script = (
        "import os, subprocess, sys\n"
        "work = [sys.executable, '-m', 'classwise.studies.runner.work']\n"
        f"subprocess.Popen([*work, {str(workspace.folder)!r}, 'one', str(os.getpid())])\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    wait_until((workspace.folder_of("one") / "calls.txt").exists)
    (pid,) = map(int, calls(workspace, "one"))
    os.kill(pid, 0)
    parent.kill()
    parent.communicate(timeout=300)
    wait_until(lambda: not running(pid))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a parent's memory")
def test_memory_is_this_processes_own_and_not_its_parents() -> None:
    filler = bytearray(b"\1") * (400 * 2**20)
    script = "from classwise.studies.runner.work import peak_megabytes; print(peak_megabytes())"
    found = float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    del filler
    assert 5 < found < 200
    assert peak_megabytes() > 400


QUICK = ("train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2")


@pytest.mark.slow
def test_a_study_killed_midway_goes_on_without_doing_anything_again(tmp_path: Path) -> None:
    """A real process, killed by SIGKILL in the middle of its second training."""
    changes = [
        "train.epochs=4",
        "data.per_class=12",
        "data.validation=1",
        "model.spec=resnet:width=8,blocks=1",
        *QUICK[3:],
    ]
    recipes = ["desk/digits/madry", "desk/digits/trades"]
    options = {"recipe": recipes, "set": changes, "per_class": 2, "attack": "pgd-2"}
    study = studies.parse("weight-norm", options)
    whole = studies.run(study, tmp_path / "whole")

    script = (
        "from classwise import studies\n"
        f"study = studies.parse('weight-norm', {options!r})\n"
        f"studies.run(study, {str(tmp_path / 'killed')!r})"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    jobs = tmp_path / "killed" / "jobs"
    trainings = ("madry", "trades")
    wait_until(
        lambda: (
            any((jobs / name / "job.json").exists() for name in trainings)
            and all((jobs / name / "history.csv").exists() for name in trainings)
        )
    )
    child.kill()
    assert child.wait(300) == -signal.SIGKILL
    done, undone = sorted(trainings, key=lambda name: not (jobs / name / "job.json").exists())
    assert not (jobs / undone / "job.json").exists()
    assert 1 <= len(pd.read_csv(jobs / undone / "history.csv")) < 4
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted((jobs / done).iterdir())}

    told: list[tuple[str, int, int]] = []
    resumed = studies.run(study, tmp_path / "killed", watch=lambda *what: told.append(what))
    assert [name for name, _, _ in told].count(done) == 0
    assert told[-1][1:] == (6, 6)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before} == before
    for name, table in whole.tables.items():
        assert resumed.tables[name].to_csv() == table.to_csv()


def test_run_folders_that_are_there_can_be_used(models: dict[str, Path], tmp_path: Path) -> None:
    options = {"recipe": ["desk/digits/madry"], "set": list(QUICK), "per_class": 2, "attack": "pgd-2"}
    study = studies.parse("weight-norm", options)
    result = studies.run(study, tmp_path / "study", use={"madry": models["madry"]})
    given, taken = models["madry"] / "history.csv", tmp_path / "study" / "jobs" / "madry" / "history.csv"
    assert taken.read_text() == given.read_text()  # its seconds too: nothing was trained
    assert len(result.tables["norms"]) == 10

    with pytest.raises(UserError, match="did you mean 'madry'"):
        studies.run(study, tmp_path / "study", use={"mardy": models["madry"]})
    with pytest.raises(UserError, match="no run folder"):
        studies.run(study, tmp_path / "study", use={"madry": tmp_path})
    with pytest.raises(UserError, match=r"(?s)madry: .*made with other settings.*method.name"):
        studies.run(study, tmp_path / "other", use={"madry": models["standard"]})


def test_a_training_is_told_apart_by_its_changes(tmp_path: Path) -> None:
    graphs = [Graph.of([TrainJob("a", "desk/digits/madry", (f"train.seed={seed}",))]) for seed in (0, 1)]
    folders = [Workspace(tmp_path, graph, Environment(), tmp_path / "pool").folder_of("a") for graph in graphs]
    assert folders[0] != folders[1]
    assert all(folder.name.startswith("a-") for folder in folders)


def test_a_recipe_that_was_changed_since_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    """A pool is kept for long, and a recipe is a file that users change."""
    mine = tmp_path / "mine.toml"
    mine.write_text((models["madry"] / "config.toml").read_text(), encoding="utf-8")
    study = studies.parse("weight-norm", {"recipe": [str(mine)], "per_class": 2, "attack": "pgd-2"})
    run = functools.partial(studies.run, study, tmp_path / "study", pool=tmp_path / "pool")
    run(use={"mine": models["madry"]})
    mine.write_text(mine.read_text().replace("batch = ", "batch = 1"), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"the job mine in .*pool.mine-\w+ was done with other settings:\n  train.batch: "
    ):
        run()


def test_a_study_has_one_writer(tmp_path: Path) -> None:
    study = studies.parse("weight-norm", {"recipe": ["desk/digits/madry"], "set": list(QUICK)})
    refused: list[str] = []

    def again() -> None:
        try:
            studies.run(study, tmp_path / "study")
        except UserError as error:
            refused.append(str(error))

    with writing(tmp_path / "study"):
        other = threading.Thread(target=again)  # whom the lock keeps out as it would another process
        other.start()
        other.join()
    assert [f"is being written by process {os.getpid()} on" in words for words in refused] == [True]
    assert not (tmp_path / "study").exists()
