"""The demo ends with a board of its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from classwise.cli.main import app
from classwise.training import train as training
from dossier_page import wrong_numbers
from quick import QUICK


@pytest.mark.slow
def test_the_demo_ends_with_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = training.train

    def quick(recipe: str, changes: list[str], **rest: Any) -> Any:
        few = [change for change in QUICK if "method" not in change]
        return whole(recipe, changes=[*changes, *few], progress=False, **rest)

    monkeypatch.setattr(training, "train", quick)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    board = pd.read_csv(tmp_path / "board" / "board.csv").set_index("name")
    assert sorted(board.index) == ["adversarial", "standard"]
    assert board.loc["adversarial", "method"] == "madry"
    assert (board["training_seconds"] > 0).all()
    assert (tmp_path / "board" / "reports" / "standard.html").is_file()
    assert str(tmp_path / "board" / "index.html") in " ".join(result.output.split("\n"))
    _check_dossier(tmp_path)


def _check_dossier(home: Path) -> None:
    """A dossier of the demo's model: its numbers are those of summary.json, and a change is noticed."""
    folder, facts = home / "dossier", home / "facts.toml"
    assert CliRunner().invoke(app, ["dossier", "--template", str(facts)]).exit_code == 0
    words = ["dossier", str(home / "adversarial"), "--facts", str(facts), "--out", str(folder), "--no-pdf"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert str(folder / "dossier.html") in made.output.replace("\n", "")
    assert wrong_numbers(folder) == []
    assert CliRunner().invoke(app, ["dossier", "--verify", str(folder)]).exit_code == 0
    (folder / "facts.toml").write_text("", encoding="utf-8")
    assert CliRunner().invoke(app, ["dossier", "--verify", str(folder)]).exit_code == 1
