"""A repair whose audits other processes compute gives what a single process gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.results.repair_result import RepairResult

pytestmark = pytest.mark.slow

NET = """
import torch
from sklearn.datasets import load_digits
from torch import nn

def make(num_classes, in_channels):
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    means = torch.stack([x[y == c].mean(0) for c in range(num_classes)])
    nearest = nn.Linear(64, num_classes)
    with torch.no_grad():
        nearest.weight.copy_(means)
        nearest.bias.copy_(-(means**2).sum(1) / 2)
    return nn.Sequential(nn.Flatten(), nearest)
"""


def test_two_processes_repair_as_one(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    words = ["repair", "--model", f"{tmp_path / 'net.py'}:make", "--data", "digits", "--per-class", "20"]
    words += ["--attack", "pgd-3", "--eps", "0.1", "--rounds", "2", "--out"]
    for name, more in (("one", []), ("two", ["--jobs", "2", "--cpus", "1"])):
        done = CliRunner().invoke(app, [*words, str(tmp_path / name), *more])
        assert done.exit_code == 0, done.output
    one, two = (RepairResult.load(tmp_path / name) for name in ("one", "two"))
    assert two.bias == pytest.approx(one.bias)
    assert two.judged() == one.judged()
    assert two.calibrated() == one.calibrated()
    folders = ("before", "after", "rounds/00", "rounds/01")
    assert {len(list((tmp_path / "two" / at / "records").glob("00-clean-*"))) for at in folders} == {2}
    assert list((tmp_path / "two" / "logs").glob("*.txt"))
    with pytest.raises(UserError, match="this has rounds: use local, ray or slurm"):
        CliRunner().invoke(
            app, [*words, str(tmp_path / "x"), "--engine", "torchrun", "--jobs", "2"], catch_exceptions=False
        )
