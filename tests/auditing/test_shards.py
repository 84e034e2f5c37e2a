"""An audit in shards: each writes its parts, the last one the summary, and the rows are those of a single process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import classwise as cw
from classwise.auditing import inputs, several
from classwise.cli.main import app
from classwise.core import run_lock
from classwise.core.errors import Unfinished, UserError
from classwise.core.records import COLUMNS, Records
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import sharing, writing
from classwise.core.shard import Shard
from classwise.data.images import Images
from classwise.dispatch import Call, Resources, engine, failures, slurm
from classwise.engine import evaluation, run
from classwise.results.audit_result import Audit
from classwise.results.merging import merge
from classwise.results.search_result import SearchResult
from classwise.show.run_progress import finished
from command_processes import command

EPS = 0.02
EXACT = ("index", "label", "attack", "eps", "prediction", "step", "queries")
Run = Callable[..., Audit]

pytestmark = pytest.mark.slow


@pytest.fixture
def audit(net: nn.Module, images: Images, tmp_path: Path) -> Run:
    def call(out: str | None = "run", **changes: Any) -> Audit:
        usual = {"attacks": ["fgsm", "pgd-3"], "eps": EPS, "batch_size": 8, "workers": 1}
        where = {} if out is None else {"out": tmp_path / out}
        return cw.audit(net, images.take(np.arange(48)), **{**usual, **where, **changes})

    return call


def table(records: Records) -> pd.DataFrame:
    return records.frame[list(COLUMNS)].sort_values(["attack", "index"], ignore_index=True)


def assert_same(one: Records, other: Records) -> None:
    """Equal rows; what is computed with floating-point numbers up to rounding."""
    a, b = table(one), table(other)
    pd.testing.assert_frame_equal(a[[*EXACT]], b[[*EXACT]])
    pd.testing.assert_frame_equal(a.drop(columns=[*EXACT]), b.drop(columns=[*EXACT]), rtol=1e-4, atol=1e-5)


class TestShards:
    def test_the_last_one_writes_the_summary(self, audit: Run, tmp_path: Path) -> None:
        for shard in ("3/3", "1/3"):
            with pytest.raises(Unfinished, match=r"has \d of 3 parts\. When the other shards have finished"):
                audit(shard=shard)
            assert not (tmp_path / "run" / "summary.json").exists()
        last = audit(shard="2/3")
        assert (tmp_path / "run" / "summary.json").is_file()
        whole = audit(None)
        assert_same(last.records, whole.records)
        assert str(last) == str(whole) == str(Audit.load(tmp_path / "run"))
        assert last.findings == whole.findings

    def test_a_shard_writes_its_parts_only(self, audit: Run, tmp_path: Path) -> None:
        with pytest.raises(Unfinished):
            audit(shard="2/4")
        parts = sorted(path.name for path in (tmp_path / "run" / "records").iterdir())
        assert parts == ["00-clean-00001.parquet", "01-fgsm-00001.parquet", "02-pgd-3-00001.parquet"]
        own = Records.read(tmp_path / "run" / "records" / parts[0])
        assert set(own.label) == {0, 1, 2, 3}

    def test_the_summary_is_written_once(self, audit: Run, tmp_path: Path) -> None:
        with pytest.raises(Unfinished):
            audit(shard="1/2")
        audit(shard="2/2")
        written = (tmp_path / "run" / "summary.json").stat().st_mtime_ns
        for shard in ("1/2", "2/2"):
            assert str(audit(shard=shard)) == str(audit(None))
        assert (tmp_path / "run" / "summary.json").stat().st_mtime_ns == written

    def test_another_confidence_writes_it_again(self, audit: Run, tmp_path: Path) -> None:
        with pytest.raises(Unfinished):
            audit(shard="1/2")
        audit(shard="2/2")
        assert audit(shard="2/2", confidence=0.9).confidence == 0.9
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["confidence"] == 0.9

    def test_another_number_of_shards_resumes(self, audit: Run, tmp_path: Path) -> None:
        """As when machines are added or given up: the parts stay, whoever computes the others."""
        with pytest.raises(Unfinished):
            audit(shard="1/4")
        with pytest.raises(Unfinished):
            audit(shard="2/3")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "records").iterdir()}
        assert_same(audit().records, audit(None).records)
        assert all(path.stat().st_mtime_ns == time for path, time in before.items())

    def test_more_shards_than_examples(self, audit: Run, tmp_path: Path) -> None:
        with pytest.raises(Unfinished, match="has 0 of 48 parts"):
            audit(shard="100/100")
        with pytest.raises(Unfinished, match="has 1 of 48 parts"):
            audit(shard="48/100")

    def test_landscape_and_adversarial_images(self, audit: Run, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"save_adversarial": True, "landscape": 1}
        with pytest.raises(Unfinished):
            audit(shard="2/2", **settings)
        sharded = audit(shard="1/2", **settings)
        whole = audit("whole", **settings)
        assert (tmp_path / "run" / "tables" / "landscape.csv").is_file()
        found, expected = sharded.adversarial("pgd-3"), whole.adversarial("pgd-3")
        order, wanted = (np.argsort(points["index"]) for points in (found, expected))
        np.testing.assert_array_equal(found["index"][order], expected["index"][wanted])
        np.testing.assert_allclose(found["exact"][order], expected["exact"][wanted], atol=1e-5)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"out": None}, "needs a run folder that all shards share"),
            ({"overwrite": True}, "would delete what other shards have written"),
            ({"shard": "3"}, "a shard is k/n"),
            ({"shard": "3/2"}, "shard 3/2 does not exist"),
        ],
    )
    def test_what_makes_no_sense(self, audit: Run, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            audit(**{"shard": "1/2", **changes})

    def test_one_of_one_is_the_whole(self, audit: Run) -> None:
        assert_same(audit(shard="1/1").records, audit(None).records)


class TestMerge:
    def test_folders_copied_together(self, audit: Run, tmp_path: Path) -> None:
        """Machines without a common file system: each its own folder, the parts copied into one."""
        for number in (1, 2):
            with pytest.raises(Unfinished):
                audit(f"machine{number}", shard=f"{number}/2")
        with pytest.raises(Unfinished, match="1 of 2 parts"):
            merge(tmp_path / "machine1")
        shutil.copytree(tmp_path / "machine2" / "records", tmp_path / "machine1" / "records", dirs_exist_ok=True)
        assert_same(merge(tmp_path / "machine1").records, audit(None).records)
        assert Audit.load(tmp_path / "machine1").timing["device"] == "cpu"

    def test_what_is_no_audit(self, tmp_path: Path, net: nn.Module, images: Images) -> None:
        with pytest.raises(UserError, match=r"it has no config\.toml"):
            merge(tmp_path)
        cw.find_worst(net, images, "pgd-2", EPS, out=tmp_path / "search")
        with pytest.raises(UserError, match="not the run folder of an audit"):
            merge(tmp_path / "search")

    def test_of_a_run_of_an_earlier_version(self, audit: Run, tmp_path: Path) -> None:
        audit()
        (tmp_path / "run" / "checks.json").unlink()
        with pytest.raises(UserError, match=r"has no checks\.json: an earlier version"):
            merge(tmp_path / "run")
        assert audit().folder is not None
        merge(tmp_path / "run")


def test_runs_of_earlier_versions_resume(audit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their parts are consecutive examples, and their plan does not say how many parts there are."""
    with monkeypatch.context() as before:
        before.setattr(evaluation, "plan", lambda *_: evaluation.BatchPlan(8, 20, 1))
        audit()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("parts = 0\n", ""))
    assert Records.read(tmp_path / "run" / "records" / "00-clean-00000.parquet").index.tolist() == list(range(20))
    (tmp_path / "run" / "records" / "02-pgd-3-00001.parquet").unlink()
    computed: list[int] = []
    attack = run._attack_part

    def noted(task: Any, *more: Any) -> Records:
        computed.append(task.number)
        return attack(task, *more)

    monkeypatch.setattr(run, "_attack_part", noted)
    with pytest.raises(Unfinished):
        audit(shard="1/2")  # parts 0 and 2, which are there
    assert not computed
    assert_same(audit().records, audit(None).records)
    assert computed[:1] == [1]  # the others are of the audit without a folder


class TestLocks:
    def test_a_folder_in_use_says_so(self, tmp_path: Path) -> None:
        with sharing(tmp_path, Shard(1, 2)), sharing(tmp_path, Shard(2, 2)):
            with pytest.raises(UserError, match=rf"being written by process {os.getpid()} .* It is shard 1/2, too"):
                sharing(tmp_path, Shard(1, 2)).__enter__()
            with pytest.raises(UserError, match="It is divided otherwise than into 3 shards"):
                sharing(tmp_path, Shard(1, 3)).__enter__()
            with pytest.raises(UserError, match="It is one of several shards"):
                writing(tmp_path).__enter__()
        with writing(tmp_path), pytest.raises(UserError, match=f"being written by process {os.getpid()}"):
            sharing(tmp_path, Shard(1, 2)).__enter__()
        assert not list(tmp_path.iterdir())

    def test_what_killed_processes_leave_is_no_hindrance(self, tmp_path: Path) -> None:
        (tmp_path / ".shard-1-of-2.lock").touch()
        (tmp_path / ".shard-1-of-2.json").write_text("{}")
        (tmp_path / run_lock.WRITER).write_text(json.dumps({"host": "h", "pid": 1, "since": "t"}))
        with sharing(tmp_path, Shard(1, 3)):
            pass
        with writing(tmp_path):
            assert not list(tmp_path.glob(".shard*"))


def test_each_process_of_a_host_has_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert str(inputs.own_device(None)) == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [str(inputs.own_device(given)) for given in (None, "cuda", "cuda:0", "cpu")] == [
        "cuda:1", "cuda:1", "cuda:0", "cpu",
    ]  # fmt: skip


NET = """
import torch
from torch import nn

def make(num_classes, in_channels):
    net = nn.Sequential(nn.Conv2d(in_channels, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, num_classes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    return net
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that audits a small network."""
    net = tmp_path_factory.mktemp("nets") / "net.py"
    net.write_text(NET)
    data = ["--data", "digits", "--per-class", "6"]
    return ["audit", "--model", f"{net}:make", *data, "--attack", "pgd-3", "--attack", "square:queries=20"]


@pytest.fixture(scope="module")
def alone(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What the command finds in a single process."""
    out = tmp_path_factory.mktemp("alone")
    process = command(*words, "--out", out / "run", log=out / "log")
    process.join(300)
    assert process.exitcode == 0, (out / "log").read_text()
    return Records.read(out / "run")


@pytest.mark.parametrize("ranks", [2, 4])
def test_torchrun(ranks: int, words: list[str], alone: Records, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    called = [*launcher, "-m", "classwise", *words, "--out", str(tmp_path / "run")]
    done = subprocess.run(called, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" is done: ") == ranks - 1
    assert done.stdout.count("Robustness by class") == 1  # shown by the one that wrote the summary
    assert_same(Records.read(tmp_path / "run"), alone)
    assert len(list((tmp_path / "run" / "records").glob("00-clean-*"))) % ranks == 0
    assert not list((tmp_path / "run").glob(".*"))


def test_a_slurm_array(words: list[str], alone: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "1")
    for task in (1, 2):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
        assert ("is done: " in done.output) == (task == 1)
    assert_same(Records.read(tmp_path / "run"), alone)
    with pytest.raises(UserError, match="2 processes were started, and a search for the worst class is led by one"):
        CliRunner().invoke(app, [*words, "--find-worst"], catch_exceptions=False)


class TestEngines:
    @pytest.mark.parametrize("engine", ["local", "torchrun"])
    def test_the_rows_are_those_of_one_process(
        self, engine: str, words: list[str], alone: Records, tmp_path: Path
    ) -> None:
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--engine", engine, "--jobs", "2"])
        assert done.exit_code == 0, done.output
        assert_same(Records.read(tmp_path / "run"), alone)
        assert not list((tmp_path / "run").rglob("*.json.partial"))

    def test_submitit(self, words: list[str], alone: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("submitit", reason='submitit is not installed: pip install "classwise[slurm]"')
        monkeypatch.setattr(slurm, "_POLL", 0.1)
        engine = ["--engine", "slurm:cluster=local,time=5", "--jobs", "2", "--cpus", "1"]
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), *engine])
        assert done.exit_code == 0, done.output
        assert_same(Records.read(tmp_path / "run"), alone)

    def test_a_search(self, words: list[str], tmp_path: Path) -> None:
        searching = [*words, "--find-worst", "--out"]
        for name, more in (("one", []), ("two", ["--jobs", "2"])):
            done = CliRunner().invoke(app, [*searching, str(tmp_path / name), *more])
            assert done.exit_code == 0, done.output
        one, two = (SearchResult.load(tmp_path / name) for name in ("one", "two"))
        assert (one.worst, one.interval, one.attacked) == (two.worst, two.interval, two.attacked)
        assert_same(one.records, two.records)
        assert len(list((tmp_path / "two").glob("records/worst-*"))) > len(
            list((tmp_path / "one").glob("records/worst-*"))
        )

    def test_a_failure_is_the_shard_s_own_words(self, words: list[str], tmp_path: Path) -> None:
        words = [word.replace(":make", ":nothing") for word in words]
        with pytest.raises(UserError, match=r"(?s)2 of 2 failed:\n  shard 1/2: .*nothing.*What is finished is kept"):
            CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--jobs", "2"], catch_exceptions=False)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"jobs": 2, "out": None}, "several processes share a run folder"),
            ({"jobs": 2}, "model is a Python object, Sequential"),
            ({"engine": "slurm"}, "needs to know how many processes to start: give --jobs"),
            ({"engine": "slrum", "jobs": 2}, "unknown engine 'slrum'; did you mean 'slurm'"),
            ({"devices": "all"}, "it has none that torch can use"),
        ],
    )
    def test_what_makes_no_sense(self, audit: Run, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            audit(**changes)

    def test_every_gpu_of_a_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
        assert several._devices("all") == ("0", "1", "2")
        assert several._devices("0, 2") == ("0", "2")
        with pytest.raises(UserError, match="'3' is none of the GPUs 0 to 2"):
            several._devices("3")


def test_each_process_of_a_local_engine_sees_its_gpu(tmp_path: Path) -> None:
    with engine("local", tmp_path, Resources(jobs=2, cpus=1, devices=("4", "7")), 2) as submit:
        calls = [Call(str(n), "os:getenv", ("CUDA_VISIBLE_DEVICES",), tmp_path / f"{n}.txt") for n in range(2)]
        futures = {submit(call): call.name for call in calls}
        assert sorted(failures(futures).values()) == ["4", "7"]  # what a call returns is its error


def test_progress_counts_what_others_write(audit: Run, tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "run")
    assert finished(folder) is None
    with pytest.raises(Unfinished):
        audit(shard="2/5")
    assert finished(folder) == {"clean": 10, "fgsm": 10, "pgd-3": 10}  # of 48 images in 5 parts
    (tmp_path / "run" / "records" / "02-pgd-3-00001.parquet").unlink()
    assert finished(folder) == {"clean": 10, "fgsm": 10, "pgd-3": 0}
