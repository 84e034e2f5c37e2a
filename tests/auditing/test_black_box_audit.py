"""Audits of black boxes: the same behind every door, and the same after a server went away and came back."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import classwise as cw
from classwise.cli.main import main
from classwise.core.errors import UserError
from classwise.core.records import COLUMNS, Records
from classwise.data import load as load_data
from classwise.engine import evaluation
from classwise.models import load_model
from classwise.models.black_box import BlackBox
from classwise.models.serve import Server

pytestmark = pytest.mark.slow

BATCH = 16
HERE: dict[str, Any] = {"limit": 96, "batch_size": BATCH, "progress": False}
EPS = 0.2

# As small as a server can be, so that it starts in no time: scores are −‖x − mean of the class‖².
SERVE = """
import sys, time
import numpy as np
from classwise.models.serve import serve

means = np.load(sys.argv[1])

def score(images):
    time.sleep(0.002)
    return -((images.reshape(len(images), 1, -1) - means) ** 2).sum(2)

serve(score, port=int(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="module")
def classifier() -> LogisticRegression:
    train = load_data("digits", split="train")
    x, y = train.batch(np.arange(len(train)))
    return LogisticRegression(C=0.01, tol=0.1, max_iter=1000).fit(16 * x.flatten(1).numpy(), y.numpy())


@pytest.fixture(scope="module")
def url(classifier: LogisticRegression) -> Iterator[str]:
    """The classifier's probabilities, behind the reference server."""
    with Server(lambda images: classifier.predict_proba(16 * images.reshape(len(images), -1)), port=0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.url
        server.shutdown()


def assert_same(one: Records, other: Records) -> None:
    assert one.frame[list(COLUMNS)].equals(other.frame[list(COLUMNS)])
    assert one.probs is not None
    np.testing.assert_array_equal(one.probs, other.probs)


@pytest.mark.parametrize("attack", ["noise-10", "square-12"])
def test_an_estimator_here_and_behind_a_server(classifier: LogisticRegression, url: str, attack: str) -> None:
    here = cw.audit(BlackBox(classifier, scale=16), "digits", attack, EPS, seed=3, **HERE)
    there = cw.audit(url, "digits", attack, EPS, seed=3, **HERE)
    assert_same(here.records, there.records)
    broken = here.records.of("clean").correct.mean() - here.records.of(attack).correct.mean()
    assert broken > 0.02
    assert not {"probabilities", "train_mode", "randomised", "zero_radius"} & {f.code for f in here.findings}


def test_a_network_its_export_and_the_export_behind_a_server(tmp_path: Path) -> None:
    """Square draws for each image, so the same questions meet the same answers: network and export differ by rounding,
    export and server by nothing."""
    network = load_model("resnet:width=8,blocks=1-1", num_classes=10, in_channels=1, seed=1)
    train = load_data("digits", split="train")
    x, y = train.batch(np.arange(len(train)))
    optimizer = torch.optim.Adam(network.train().parameters(), lr=0.02)
    for _ in range(25):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    path = tmp_path / "net.onnx"
    batch = {0: torch.export.Dim("batch")}
    torch.onnx.export(network.eval(), (x[:2],), path, dynamic_shapes=(batch,), dynamo=True, verbose=False)
    export = load_model(path)
    with Server(lambda images: export(torch.from_numpy(images)).numpy(), port=0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        here = BlackBox(lambda images: network(torch.from_numpy(images)).detach().numpy(), scores="logits")
        models = [here, export, f"{server.url},scores=logits"]
        first, second, third = (cw.audit(model, "digits", "square-60", 0.05, seed=3, **HERE) for model in models)
        server.shutdown()
    assert_same(second.records, third.records)
    columns = ["index", "prediction", "step", "queries"]
    for attack in first.records.attacks:
        assert first.records.of(attack).frame[columns].equals(second.records.of(attack).frame[columns])
    standing = [first.records.of(attack).correct.mean() for attack in first.records.attacks]
    assert 0.3 < standing[1] < standing[0] - 0.1


def test_the_command_line(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(model: str, *more: str) -> int:
        command = ["classwise", "audit", "--model", model, "--data", "digits", "--limit", "20", *more]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0)

    assert code(url, "--attack", "noise-3", "--out", str(tmp_path / "run")) == 0
    assert cw.Audit.load(tmp_path / "run").records.attacks == ("clean", "noise-3")
    capsys.readouterr()
    assert code(url) == 2
    assert "pgd-20 needs the gradient" in capsys.readouterr().err
    assert code(f"http://127.0.0.1:{free_port()}/,retries=0", "--attack", "noise-3") == 2
    assert "does not answer after 1 attempts" in capsys.readouterr().err


def test_a_budget_is_spent_part_by_part(tmp_path: Path, classifier: LogisticRegression) -> None:
    """Each run has a budget for some of the parts; together they give what one without a budget gives."""

    def audit(out: Path, budget: int | None) -> cw.Audit:
        with mock.patch.object(evaluation, "plan", return_value=evaluation.BatchPlan(BATCH, BATCH, 1)):
            return cw.audit(BlackBox(classifier, scale=16, budget=budget), "digits", "noise-6", EPS, out=out, **HERE)

    poor, rich = tmp_path / "poor", audit(tmp_path / "rich", None)
    finished = 0
    for _ in range(2):
        with pytest.raises(UserError, match="the budget of 390 images is spent"):
            audit(poor, 390)
        assert finished < len(parts(poor)) < 12
        finished = len(parts(poor))
    assert_same(audit(poor, None).records, rich.records)


# ---- a server that is killed --------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class started:
    """A server of its own process: `with started(command) as address`."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> str:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words[:2] == ["serving", "at"]
        return words[2]

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()


def parts(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "records").glob("*.parquet")}


def test_a_server_killed_and_started_again(tmp_path: Path) -> None:
    train = load_data("digits", split="train")
    x, y = train.batch(np.arange(len(train)))
    np.save(tmp_path / "means.npy", np.stack([x[y == k].flatten(1).mean(0) for k in range(train.num_classes)]))
    command = [sys.executable, "-c", SERVE, str(tmp_path / "means.npy"), str(free_port())]

    def audit(address: str, out: Path) -> cw.Audit:
        spec = f"{address},retries=1,backoff=0,chunk={BATCH // 2},concurrency=2"
        with mock.patch.object(evaluation, "plan", return_value=evaluation.BatchPlan(BATCH, BATCH, 1)):
            return cw.audit(spec, "digits", "noise-20", EPS, out=out, **HERE)

    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    server = started(command)
    with server as address:

        def kill() -> None:
            while len(parts(killed)) < 3:
                time.sleep(0.001)
            server.process.kill()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with pytest.raises(UserError, match=r"does not answer after 2 attempts .*the same command resumes from there"):
            audit(address, killed)
        killer.join()
    kept = parts(killed)
    assert 3 <= len(kept) < 12
    assert not (killed / "summary.json").exists()

    with started(command) as again:
        assert again == address
        resumed = audit(again, killed)
        unbroken.mkdir()
        shutil.copy(killed / "config.toml", unbroken)
        expected = audit(again, unbroken)
    assert kept.items() <= parts(killed).items()
    assert parts(killed).keys() == parts(unbroken).keys()
    assert_same(resumed.records, expected.records)
    assert_same(Records.read(killed), Records.read(unbroken))
    assert 0.05 < resumed.records.of("noise-20").correct.mean() < 0.95  # both outcomes are there to be compared
