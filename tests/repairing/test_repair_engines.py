"""A repair whose audits other processes compute gives what a single process gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.results.repair_result import RepairResult

pytestmark = pytest.mark.slow

NET = Path(__file__).parents[1] / "nearest_mean.py"


def test_two_processes_repair_as_one(tmp_path: Path) -> None:
    words = ["repair", "--model", f"{NET}:make", "--data", "digits", "--per-class", "20"]
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
