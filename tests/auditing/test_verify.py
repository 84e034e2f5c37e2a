"""`verify`: an honest submission is repeated row by row, and one that was doctored is caught."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import classwise as cw
from classwise.auditing.verify import verify
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.results.audit_result import Audit

pytestmark = pytest.mark.slow

NET = """
from torch import nn

def make(num_classes, in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, num_classes))
"""


def write_weights(path: Path, noise: float = 0.0) -> Path:
    """A linear classifier by the means of the classes, right about most digits; noise makes it another one."""
    images = cw.load_data("digits", split="train")
    x, y = images.batch(np.arange(len(images)))
    means = torch.stack([x[y == number].mean(0).flatten() for number in range(10)])
    means += noise * torch.randn(means.shape, generator=torch.Generator().manual_seed(1))
    torch.save({"1.weight": means, "1.bias": -means.pow(2).sum(1) / 2}, path)
    return path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of all test digits under two attacks, both of them random."""
    home = tmp_path_factory.mktemp("submitted")
    (home / "net.py").write_text(NET)
    cw.audit(
        f"{home / 'net.py'}:make",
        "digits",
        ["pgd:steps=3", "square-20"],
        0.2,
        weights=write_weights(home / "linear.pt"),
        seed=5,
        out=home / "run",
        progress=False,
    )
    return home / "run"


@pytest.fixture
def doctored(honest: Path, tmp_path: Path) -> Callable[[Callable[[pd.DataFrame], pd.DataFrame]], Path]:
    """doctored(change) is a copy of the submission with its records changed, and sealed again."""

    def write(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
        run = tmp_path / "doctored"
        shutil.copytree(honest, run)
        for part in sorted((run / "records").glob("*.parquet")):
            stored = Records.read(part)
            dataclasses.replace(stored, frame=change(stored.frame.copy())).write(part)
        return run

    return write


def test_an_honest_submission_holds(honest: Path) -> None:
    result = verify(honest, per_class=6, seed=1)
    assert result.passed
    assert result.counts["same"] == len(result.rows) == 60
    attacked = result.rows["broken"] & (result.rows["clean"] == result.rows["class"].astype(str))
    assert 0 < attacked.sum() < 60
    assert set(result.rows["index"]) != set(verify(honest, per_class=6, seed=2).rows["index"])


def test_robust_rows_made_up_are_found(honest: Path, doctored: Callable[..., Path]) -> None:
    """Every image of the worst class is said to be robust; all else is as it was."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        better = (frame["attack"] != CLEAN) & (frame["label"] == Audit.load(honest).worst.number)
        return frame.assign(prediction=frame["prediction"].where(~better, frame["label"]))

    result = verify(doctored(change), per_class=8, seed=1)
    assert not result.passed
    assert result.counts["found here"] > 0
    assert set(result.differing()["class"]) == {Audit.load(honest).worst.name}


def test_clean_predictions_made_up_are_found(doctored: Callable[..., Path]) -> None:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(prediction=frame["label"])

    result = verify(doctored(change), per_class=20, seed=1)
    assert not result.passed
    assert result.counts["clean"] > 0


def test_labels_made_up_are_found_before_anything_is_attacked(doctored: Callable[..., Path]) -> None:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(label=frame["label"].where(frame["label"] != 3, 4))

    result = verify(doctored(change), seed=1)
    assert not result.passed
    assert result.rows.empty
    assert "another label than the data" in str(result)
    json.dumps(result.summary(), allow_nan=False)


def test_another_model_is_refused(honest: Path, tmp_path: Path) -> None:
    other = write_weights(tmp_path / "other.pt", noise=0.3)
    result = verify(honest, model=f"{honest.parent / 'net.py'}:make", weights=other, per_class=2, seed=1)
    assert not result.passed
    assert "another fingerprint" in str(result)


def test_other_images_are_refused(honest: Path) -> None:
    images = cw.load_data("digits", split="train")
    result = verify(honest, data=images, seed=1)
    assert not result.passed
    assert "images" in str(result)


def test_a_model_given_in_python_is_given_again(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    cw.audit(model, "digits", "fgsm", 0.1, per_class=3, out=tmp_path / "run", progress=False)
    with pytest.raises(UserError, match="Python objects"):
        verify(tmp_path / "run")
    assert verify(tmp_path / "run", model=model, per_class=2, seed=0).passed
    with pytest.raises(UserError, match="did you mean"):
        verify(tmp_path / "run", model=model, devise="cpu")


def test_the_command(honest: Path, doctored: Callable[..., Path], tmp_path: Path) -> None:
    words = ["leaderboard", "verify", str(honest), "--per-class", "2", "--seed", "1", "--csv", str(tmp_path / "a.csv")]
    good = CliRunner().invoke(app, words)
    assert good.exit_code == 0, good.output
    assert "run holds: 20 of 20 images" in " ".join(good.output.split())
    assert len(pd.read_csv(tmp_path / "a.csv")) == 20
    wrong = doctored(lambda frame: frame.assign(prediction=frame["label"]))
    bad = CliRunner().invoke(app, ["leaderboard", "verify", str(wrong), "--per-class", "20", "--seed", "1", "--json"])
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["passed"] is False
