"""An audit killed with -9 at several moments and started again gives what an uninterrupted one gives, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import classwise as cw
from classwise.attacks.pgd import Pgd
from classwise.core.records import COLUMNS, Records
from classwise.engine import evaluation
from classwise.models import load_model

PARTS, BATCH = 10, 12

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="there is no -9 to kill with")]


def audit(out: str) -> None:
    """The whole audit, as the killed process runs it: 20 files of a few hundredths of a second each."""
    torch.set_num_threads(1)
    model = load_model("resnet:width=4,blocks=1-1", num_classes=4, in_channels=1, normalize="mnist")
    x = torch.rand(PARTS * BATCH, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.head.bias -= model(x).mean(0)  # answers spread over the classes
        y = model(x).argmax(1)
    with mock.patch.object(
        evaluation, "plan", return_value=evaluation.BatchPlan(BATCH, BATCH, 1)
    ):  # parts of a single batch
        cw.audit(model, (x, y), Pgd(steps=20, restarts=3), 0.008, out=out, batch_size=BATCH, workers=1, num_classes=4)


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "records").glob("*.parquet")}


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.ForkServerContext:
    """Processes forked from one that has imported everything and computed nothing: real, and quick to start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["classwise.auditing.audit", __name__])
    return context


def test_killed_and_resumed(processes: multiprocessing.context.ForkServerContext, tmp_path: Path) -> None:
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    chance = random.Random(0)
    kept: dict[str, int] = {}
    for target in (1, 5, 12):
        process = processes.Process(target=audit, args=(str(killed),))
        process.start()
        while len(files(killed)) < target and process.is_alive():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        done = files(killed)
        assert target <= len(done) < 2 * PARTS
        assert kept.items() <= done.items()  # a finished part is never written again
        kept = done
        assert not (killed / "summary.json").exists()
    unbroken.mkdir()
    shutil.copy(killed / "config.toml", unbroken)
    for out in (killed, unbroken):
        process = processes.Process(target=audit, args=(str(out),))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert kept.items() <= files(killed).items()
    assert files(killed).keys() == files(unbroken).keys()
    assert not list(killed.rglob("*.partial"))

    one, other = Records.read(killed), Records.read(unbroken)
    assert one.frame[list(COLUMNS)].equals(other.frame[list(COLUMNS)])
    assert one.probs is not None
    np.testing.assert_array_equal(one.probs, other.probs)
    assert len(one) == 2 * PARTS * BATCH
    assert 0.05 < one.of(one.attacks[1]).correct.mean() < 0.95  # both outcomes are there to be compared
    results = [cw.Audit.load(folder).summary() for folder in (killed, unbroken)]
    for result in results:
        del result["timing"]
    assert results[0] == results[1]
