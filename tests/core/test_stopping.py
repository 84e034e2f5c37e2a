"""Real processes, asked to stop by Ctrl-C or SIGTERM: what is finished is kept, a word, and the signal's exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from classwise.core.run_lock import WRITER
from command_processes import command, running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="sends signals")]

NET = """
from torch import nn

def make(num_classes, in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, num_classes))
"""
both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def quick(words: list[str], folder: Path, **environment: str) -> subprocess.Popen[str]:
    """``python -m classwise …`` as a shell in front would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "classwise", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env={**os.environ, **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


@both
def test_while_it_still_imports(number: signal.Signals, tmp_path: Path) -> None:
    """In the middle of the import of pandas, which takes as long as that here."""
    (tmp_path / "pandas.py").write_text(
        "import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(300)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = quick(["list", "metrics"], tmp_path, PYTHONPATH=path)
    wait_until((tmp_path / "begun").exists)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=120)
    assert (process.returncode, printed) == (128 + number, "stopped.\n")


@both
@pytest.mark.parametrize("search", [(), ("--find-worst",)])
def test_an_audit_or_a_search(number: signal.Signals, search: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    out, log = tmp_path / "run", tmp_path / "log"
    data = ["--model", tmp_path / "net.py:make", "--data", "digits", "--per-class", 3]
    process = command("audit", *data, "--attack", "pgd-10000000", "--out", out, *search, log=log)
    clean = out / "records" / "00-clean-00000.parquet"
    wait_until(lambda: clean.exists() or not process.is_alive())
    assert clean.exists(), log.read_text()
    before = clean.stat().st_mtime_ns
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(120)
    printed = " ".join(log.read_text().split())
    assert process.exitcode == 128 + number, printed
    assert printed.endswith(f"stopped; the same command resumes in {out}.")
    assert "Traceback" not in printed
    assert clean.stat().st_mtime_ns == before
    assert not list(out.rglob("*.partial"))
    assert not (out / WRITER).exists()


def test_a_study_and_the_processes_of_its_jobs(tmp_path: Path) -> None:
    recipes = [word for name in ("madry", "trades") for word in ("--recipe", f"desk/digits/{name}")]
    changes = ["--set", "train.epochs=1000", "--set", "validate.attack=pgd-1"]
    process = quick(["study", "weight-norm", *recipes, *changes, "--jobs", "2", "--out", "study"], tmp_path)
    writers = [tmp_path / "study" / "jobs" / name / WRITER for name in ("madry", "trades")]
    wait_until(lambda: all(path.exists() for path in writers) or process.poll() is not None, 300)
    children: list[Any] = [json.loads(path.read_text())["pid"] for path in writers]
    assert all(map(running, children))
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 143, printed
    assert " ".join(printed.split()) == "stopped; the same command resumes in study."
    assert not any(map(running, children))
    for path in writers:
        assert "Traceback" not in (path.parent / "log.txt").read_text()


# ---- what printing ends in ----------------------------------------------------------------------------------------


def test_a_full_device_is_a_sentence() -> None:
    with open("/dev/full", "wb") as full:
        done = printing("list", "metrics", into=full)
    assert done.returncode == 2
    assert done.stderr == "error: cannot write what is to be printed: No space left on device.\n"


def test_a_pipe_that_nobody_reads_any_more_is_not_worth_a_word() -> None:
    """As after ``| head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = printing("list", "metrics", "--json", into=pipe)
    assert (done.returncode, done.stderr) == (141, "")


def printing(*words: str, into: IO[bytes]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "classwise", *words]
    return subprocess.run(program, stdout=into, stderr=subprocess.PIPE, text=True, check=False)
