"""One writer for each run folder: a second one is told who the first is, a dead one is no hindrance."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

import classwise as cw
from classwise.core import run_lock
from classwise.core.errors import UserError
from classwise.core.records import COLUMNS, Records
from classwise.core.run_lock import LOCK, WRITER, writing
from classwise.core.storage import atomic_write
from command_processes import command, wait_until

HOLD = """
import sys
from classwise.core.run_lock import writing
with writing(sys.argv[1]):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Any:
    """A run folder into which another process writes, and that process."""
    folder = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "in\n"
    yield folder, child
    child.kill()
    child.communicate()


@pytest.mark.slow
def test_a_second_writer_is_told_who_the_first_is(held: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, child = held
    since = json.loads((folder / WRITER).read_text())["since"]
    expected = f"process {child.pid} on {socket.gethostname()} since {since}"
    with pytest.raises(UserError) as refused, writing(folder):
        pass
    assert f"{folder} is being written by {expected}. Wait until it has finished" in str(refused.value)
    assert "delete" not in str(refused.value)  # this machine frees the lock of a dead process by itself


@pytest.mark.slow
def test_when_the_first_has_finished_nothing_is_left_of_it(held: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, child = held
    child.communicate()  # its input ends, and so does it
    assert not folder.exists()  # it had made the folder and put nothing into it
    with writing(folder):
        (folder / "kept").touch()
    assert [path.name for path in folder.iterdir()] == ["kept"]


@pytest.mark.slow
def test_a_killed_writer_is_no_hindrance_and_what_it_left_half_is_swept(
    held: tuple[Path, subprocess.Popen[str]],
) -> None:
    folder, child = held
    (folder / "records").mkdir()
    half = folder / "records" / ".00-clean-00000.parquet.0123abcd.partial"
    half.touch()
    child.kill()
    child.wait()
    assert (folder / WRITER).exists()
    with writing(folder):
        assert json.loads((folder / WRITER).read_text())["pid"] == os.getpid()
        assert not half.exists()
        (folder / "own.partial").touch()  # anybody's file of such a name is not ours to remove
    with writing(folder):
        assert (folder / "own.partial").exists()


@pytest.mark.slow
def test_who_waits_goes_on_when_the_first_has_finished(held: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, child = held
    times: dict[str, float] = {}

    def wait() -> None:
        with writing(folder, wait=True):
            times["in"] = time.monotonic()

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    left = time.monotonic()
    child.communicate()
    waiting.join(30)
    assert times["in"] > left


def test_the_writer_may_enter_again_but_another_of_its_threads_may_not(tmp_path: Path) -> None:
    refused: list[str] = []

    def enter() -> None:
        try:
            with writing(tmp_path / "run"):
                pass
        except UserError as error:
            refused.append(str(error))

    with writing(tmp_path / "run"):
        enter()
        assert refused == []
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert [f"process {os.getpid()} on" in words for words in refused] == [True]


@pytest.mark.slow
def test_without_locks_of_the_system_a_file_is_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLocks(filelock.FileLock):
        def _acquire(self) -> None:
            raise OSError(run_lock.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock, "FileLock", NoLocks)
    folder = tmp_path / "run"
    with writing(folder):
        assert (folder / LOCK).read_text().startswith(f"{os.getpid()}\n")
        (folder / "kept").touch()
    assert [path.name for path in folder.iterdir()] == ["kept"]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (folder / LOCK).write_text(f"{ended.pid}\n{socket.gethostname()}\n")
    with writing(folder):  # that process is gone
        pass
    (folder / LOCK).write_text("1\nelsewhere\n")
    with atomic_write(folder / WRITER) as handle:
        handle.write(json.dumps({"host": "elsewhere", "pid": 1, "since": "yesterday"}).encode())
    with pytest.raises(UserError) as refused, writing(folder):
        pass
    assert "process 1 on elsewhere since yesterday" in str(refused.value)
    assert f"If that process is gone, delete {folder / LOCK}" in str(refused.value)


@pytest.mark.parametrize("work", [cw.audit, cw.find_worst, cw.train])
def test_an_empty_folder_name_is_no_folder(work: Callable[..., Any]) -> None:
    arguments = ["desk/digits/standard"] if work is cw.train else ["lenet", "digits"]
    with pytest.raises(UserError, match=r"out, --out\) is empty"):
        work(*arguments, out="")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file; --out must be a folder"), writing(tmp_path / "file"):
        pass
    with pytest.raises(UserError, match=r"cannot use .* as a run folder"), writing(tmp_path / "file" / "below"):
        pass


# ---- three processes at once ------------------------------------------------------------------------------------

NET = """
import time
from pathlib import Path
from torch import nn

def make(num_classes, in_channels):
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.005)
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, num_classes))
"""
ATTACKS = ("noise", "pgd-2", "fgsm")
TIMES = int(os.environ.get("CLASSWISE_REPEAT", "3"))


def start(net: Path, out: Path, log: Path) -> BaseProcess:
    options = [word for attack in ATTACKS for word in ("--attack", attack)]
    return command(
        "audit", "--model", f"{net}:make", "--data", "digits", "--per-class", 4, "--out", out, *options, log=log
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit that nobody disturbs, and the network of all audits, which waits for a file called go."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "net.py").write_text(NET)
    (folder / "go").touch()
    process = start(folder / "net.py", folder / "run", folder / "log")
    process.join(120)
    assert process.exitcode == 0, (folder / "log").read_text()
    return folder


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="starts processes by fork")
@pytest.mark.parametrize("number", range(TIMES))
def test_of_three_processes_at_once_one_works_and_two_say_so(whole: Path, tmp_path: Path, number: int) -> None:
    """The folder is new, or holds a part of the run; one that is killed while it writes changes nothing."""
    out, net, rng = tmp_path / "run", tmp_path / "net.py", np.random.default_rng(number)
    net.write_text(NET)
    kept: list[Path] = []
    if number % 3:
        shutil.copytree(whole / "run", out)
        (out / "summary.json").unlink()
        parts = sorted((out / "records").glob("*.parquet"))
        assert len(parts) == 1 + len(ATTACKS)
        for path in rng.choice(parts, 2, replace=False):  # type: ignore[arg-type]
            Path(path).unlink()
        kept = sorted((out / "records").glob("*.parquet"))
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in kept]
    if number % 3 == 2:
        victim = start(net, out, tmp_path / "victim")
        wait_until((out / WRITER).exists)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(120)
    logs = [tmp_path / f"log-{place}" for place in range(3)]
    processes = [start(net, out, log) for log in logs]
    wait_until(lambda: sum(process.is_alive() for process in processes) == 1)
    (first,) = (process for process in processes if process.is_alive())
    assert json.loads((out / WRITER).read_text())["pid"] == first.pid
    (tmp_path / "go").touch()
    for process in processes:
        process.join(120)
    printed = [" ".join(log.read_text().split()) for log in logs]
    for process, words in zip(processes, printed, strict=True):
        assert process.exitcode == (0 if process is first else 2), words
        assert "Traceback" not in words
        told = f"is being written by process {first.pid} on {socket.gethostname()} since 20"
        assert (told in words) == (process is not first), words
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in kept] == before
    one, other = Records.read(out), Records.read(whole / "run")
    assert one.frame[list(COLUMNS)].equals(other.frame[list(COLUMNS)])
    assert len(one) == 40 * (1 + len(ATTACKS))
    assert cw.Audit.load(out).summary()["attacks"] == cw.Audit.load(whole / "run").summary()["attacks"]
    assert {path.name for path in out.rglob("*")} == {path.name for path in (whole / "run").rglob("*")}
