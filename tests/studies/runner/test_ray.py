"""A study on a local Ray with two workers, one of which is killed; run by `make test-adapters`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from classwise import studies
from classwise.core.errors import UserError
from classwise.dispatch import Resources
from classwise.studies.runner.engines import drive, engine
from classwise.studies.runner.graph import DeriveJob, Graph
from classwise.studies.runner.work import Environment, Workspace
from command_processes import wait_until

pytestmark = [pytest.mark.adapters, pytest.mark.slow]
ray: Any = pytest.importorskip("ray", reason='Ray is not installed: pip install "classwise[ray]"')

QUICK = ("train.epochs=3", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2")
ERRANDS = """
import os, time
from classwise.core.errors import UserError

def note(folder, environment, after="", wait=0.0):
    import torch
    with (folder / "calls.txt").open("a") as sink:
        sink.write(f"{os.getpid()} {torch.get_num_threads()}\\n")
    time.sleep(wait if len((folder / "calls.txt").read_text().splitlines()) == 1 else 0.0)

def refuse(folder, environment):
    raise UserError("this cannot be done")
"""


@pytest.fixture
def errands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "errands_of_ray.py").write_text(ERRANDS)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])])
    )


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    assert not ray.is_initialized()  # what the engine began it has ended


def first_call(path: Path) -> int:
    """The process of the job, as soon as it has begun."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text().split()[0])


@pytest.mark.usefixtures("errands")
def test_a_killed_worker_is_replaced_and_a_failure_holds_up_only_its_own(tmp_path: Path) -> None:
    jobs = [
        DeriveJob("killed", "errands_of_ray:note", {"wait": 600.0}),
        DeriveJob("after", "errands_of_ray:note", {"after": "{killed}"}),
        DeriveJob("bad", "errands_of_ray:refuse"),
        DeriveJob("never", "errands_of_ray:note", {"after": "{bad}"}),
    ]
    workspace = Workspace.begin(tmp_path / "study", Graph.of(jobs), Environment())
    calls = workspace.folder_of("killed") / "calls.txt"
    killer = threading.Thread(target=lambda: os.kill(first_call(calls), signal.SIGKILL))
    killer.start()
    with (
        pytest.raises(UserError, match=r"1 of 4 jobs failed:\n  bad: this cannot be done"),
        engine("ray", workspace, Resources(jobs=2, cpus=1)) as submit,
    ):
        list(drive(workspace, submit))
    killer.join()
    first, second = (line.split() for line in calls.read_text().splitlines())
    assert first[0] != second[0]
    assert second[1] == "1"  # thread
    assert workspace.finished(workspace.graph.jobs["after"]) is not None
    assert not workspace.folder_of("never").exists()


def test_the_table_is_the_same_as_without_ray(tmp_path: Path) -> None:
    options = {"recipe": ["desk/digits/madry"], "set": list(QUICK), "per_class": 3, "attack": "pgd-2"}
    study = studies.parse("weight-norm", options)
    here = studies.run(study, tmp_path / "here", engine_spec="local", resources=Resources(jobs=2, cpus=1))
    there = studies.run(study, tmp_path / "there", engine_spec="ray", resources=Resources(jobs=2, cpus=1))
    for name, table in here.tables.items():
        assert there.tables[name].to_csv() == table.to_csv()


def test_nobody_at_the_address(tmp_path: Path) -> None:
    workspace = Workspace.begin(tmp_path, Graph.of([DeriveJob("a", "m:f")]), Environment())
    with (
        pytest.raises(UserError, match="no Ray answers at auto"),
        engine("ray:auto", workspace, Resources()),
    ):
        pass
