"""The page of a leaderboard: what is written, without a browser; and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import classwise as cw
from board_runs import write_entry, write_trained
from classwise.cli.main import app
from classwise.show.page import board as board_page
from page_runs import SCRIPT


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two models of ten classes, one with its training, and a class whose name is markup."""
    names = [*(f"class {number}" for number in range(9)), SCRIPT]
    checkpoint = write_trained(tmp_path / "trained", "wat", 0)
    write_entry(tmp_path / "runs" / "wat", [30] * 9 + [20], names, model=str(checkpoint))
    write_entry(tmp_path / "runs" / "madry", [32] * 9 + [5], names)
    return tmp_path / "runs"


def test_the_page_holds_every_row_without_a_script(runs: Path, tmp_path: Path) -> None:
    board = cw.leaderboard([runs])
    text = board_page.build(board, tmp_path / "board", reports=False).read_text(encoding="utf-8")
    rows = re.findall(r'<tr[^>]*data-place="\d+"', text)
    assert len(rows) == 2 + len(board.printed)
    assert len(board.printed) > 19
    assert text.index(">wat<") < text.index(">madry<") < text.index("Printed in papers, not ranked")
    assert SCRIPT not in text
    assert "Accuracy by class: &lt;script&gt;" in text
    assert "50.0%" in text
    assert "30 s" in text
    assert "http:" not in text
    assert "https:" not in text


def test_files_beside_the_page(runs: Path, tmp_path: Path) -> None:
    board = cw.leaderboard([runs])
    board_page.build(board, tmp_path / "board", reports=False)
    assert pd.read_csv(tmp_path / "board" / "board.csv")["name"].tolist() == ["wat", "madry"]
    assert json.loads((tmp_path / "board" / "board.json").read_text())["confidence"] == 0.95
    assert (tmp_path / "board" / "board.md").read_text().startswith("## cifar10")
    assert not (tmp_path / "board" / "reports").exists()


def test_names_of_reports_do_not_collide(tmp_path: Path) -> None:
    for name in ("a/b", "a_b", "A_b"):
        write_entry(tmp_path / name / "run", [30] * 10)
    board = cw.leaderboard([tmp_path / name / "run" for name in ("a/b", "a_b", "A_b")])
    files = [file.lower() for _, file in board_page.report_names(board).values()]
    assert len(files) == len(set(files)) == 3


@pytest.mark.slow
def test_the_command_writes_a_report_for_each_row(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "board"
    result = CliRunner().invoke(app, ["leaderboard", str(runs / "*"), "--out", str(out), "--sort", "average"])
    assert result.exit_code == 0, result.output
    assert result.output.index("madry") < result.output.index("wat")
    page = (out / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'href="(reports/[^"]+)"', page)
    assert sorted(links) == ["reports/madry.html", "reports/wat.html"]
    assert "Robustness by class: wat" in (out / "reports" / "wat.html").read_text(encoding="utf-8")
    assert "classwise leaderboard" in page


def test_the_command_without_a_folder(runs: Path) -> None:
    result = CliRunner().invoke(app, ["leaderboard", str(runs), "--json", "--no-printed"])
    assert result.exit_code == 0, result.output
    (division,) = json.loads(result.stdout)["divisions"]
    assert [row["name"] for row in division["models"]] == ["wat", "madry"]
    assert division["printed"] == []
    named = CliRunner().invoke(app, ["leaderboard", "build", str(runs), "--printed"])
    assert "trades, printed" in named.output
    assert CliRunner().invoke(app, ["leaderboard", "--help"]).exit_code == 0
