"""The commands study and reproduce, as typed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from classwise import published, studies
from classwise.cli import studies as commands
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.studies.homing import Homing
from classwise.studies.runner.options import options
from for_each import for_each
from quick import QUICK as CHANGES

QUICK = ("--per-class", "3", "--attack", "pgd-2", "--no-progress")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_options_are_the_studys_fields() -> None:
    given = ["--inv-temperature", "1,2", "--model", "a", "--model=b=c.pt", "--per-class", "5"]
    assert commands._options(given, "temperature") == {
        "inv_temperature": "1,2",
        "model": ["a", "b=c.pt"],
        "per_class": "5",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["weight-norm", "--modle", "x"], "unknown option of the study weight-norm '--modle'; did you mean '--model'"),
        (["weight-norm", "--jbos", "2"], "unknown option of the study weight-norm '--jbos'; did you mean '--jobs'"),
        (["weight-norm", "--per_clas", "2"], "did you mean '--per-class'"),
        (["weight-nrom"], "unknown study 'weight-nrom'; did you mean 'weight-norm'"),
        (["weight-norm", "--model"], "--model needs a value"),
        (["weight-norm", "runs/he"], "'runs/he' is not an option"),
        (["weight-norm"], "no model to study"),
        (["weight-norm", "--model", "nowhere.pt"], "no checkpoint nowhere.pt"),
        (["weight-norm", "--jobs", "0"], "--jobs must be at least 1"),
        (["weight-norm", "--cpus", "0"], "--cpus must be at least 1, got 0"),
        (["weight-norm", "--retries", "-1"], "--retries must be at least 0, got -1"),
        (["weight-norm", "--gpus", "-0.5"], r"--gpus must be at least 0, got -0\.5"),
        (["weight-norm", "--out", ""], "--out has an empty value"),
        (
            ["weight-norm", "--recipe", "desk/digits/madry", "--engine", "rya"],
            "unknown engine 'rya'; did you mean 'ray'",
        ),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(app, ["study", *arguments], catch_exceptions=False)


def test_a_study_prints_its_tables_and_verdicts_and_is_done_once(models: dict[str, Path], tmp_path: Path) -> None:
    command = ("study", "weight-norm", "--model", str(models["madry"]), *QUICK, "--out", str(tmp_path / "out"))
    first = run(*command)
    assert "correlation" in first
    assert "robustness grows" in first
    assert f"all of it: {tmp_path / 'out' / 'study.html'}" in first
    page = (tmp_path / "out" / "study.html").read_text(encoding="utf-8")
    assert "of the 2 claims is decided" in page or "The claim is not decided" in page
    assert "<svg" in page
    mark = tmp_path / "out/jobs/madry-audit/job.json"
    made = mark.stat().st_mtime_ns
    assert run(*command).endswith(first[first.index("\ncorrelation") :])
    assert mark.stat().st_mtime_ns == made


def test_studies_share_a_pool(models: dict[str, Path], tmp_path: Path) -> None:
    shared = ("--model", str(models["madry"]), *QUICK, "--pool", str(tmp_path / "pool"))
    run("study", "weight-norm", *shared, "--out", str(tmp_path / "norms"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("pool/*/job.json")}
    run("study", "similarity", *shared, "--permutations", "99", "--out", str(tmp_path / "similarity"))
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("pool/*/job.json")}
    assert before.items() < after.items()  # the audit was there already, only the logits were not
    assert len(after) == len(before) + 1


def test_a_finished_run_folder_stands_for_a_job(models: dict[str, Path], tmp_path: Path) -> None:
    recipe = [part for change in (*CHANGES,) for part in ("--set", change)]
    command = ("study", "weight-norm", "--recipe", "desk/digits/madry", *recipe, *QUICK, "--out", str(tmp_path / "out"))
    plan = run(*command, "--use", f"madry={models['madry']}", "--dry-run")
    states = {line.split()[0]: line for line in plan.splitlines() if line.startswith("madry")}
    assert " given " in states["madry"]
    assert " to do " in states["madry-audit"]
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="is no run folder"):
        run(*command, "--use", f"madry={tmp_path}", "--dry-run")
    run(*command, "--use", f"madry={models['madry']}")
    copied, given = (folder / "best.pt" for folder in (tmp_path / "out/jobs/madry", models["madry"]))
    assert copied.read_bytes() == given.read_bytes()
    with pytest.raises(UserError, match="made with other settings"):
        run(*command[:-1], str(tmp_path / "other"), "--use", f"madry={models['standard']}")


@for_each("name", studies.names())
def test_every_option_of_a_study_is_explained(name: str) -> None:
    for option in options(studies.study_class(name)):
        assert len(option.meaning.split()) > 1, f"{name} {option.flag}: {option.meaning!r}"
        assert option.kind


def test_help_shows_a_studys_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for order in (["study", "homing", "--help"], ["study", "--help", "homing"], ["study", "homing", "-h"]):
        text = run(*order)
        lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("--")}
        assert set(lines) == {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Homing)}
        assert "pgd-20" in lines["--attack"]
        assert "linf|l2" in lines["--norm"]
        assert "the checkpoint audited, best or last" in lines["--which"]
        assert "--dry-run" in text
    assert "the checkpoint audited" not in run("study", "--help")


def test_what_an_option_takes_and_means() -> None:
    found = {option.flag: option for option in options(studies.study_class("temperature"))}
    assert found["--inv-temperature"].kind == "numbers, 1,2,3"
    assert found["--inv-temperature"].default == "1.0,2.0,5.0,10.0,50.0"
    assert found["--model"].meaning == "checkpoints or run folders, NAME=PATH to name one"
    assert found["--protocol"].kind == "any|final"
    assert found["--per-class"].kind == "whole number"
    assert found["--norm"].default == ""
    white = {option.flag: option for option in options(studies.study_class("background"))}
    assert white["--pairing"].meaning.endswith("controls (random, black), each trained once")  # not: Of white


def test_every_study_is_listed() -> None:
    output = run("list", "studies", "--json")
    assert list(json.loads(output)) == studies.names()
    assert {item.study for item in published.items()} - {None} <= set(studies.names())


@pytest.mark.slow
def test_a_dry_run_of_a_reproduction_prices_its_jobs_and_does_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    said = run("reproduce", "tian2021:table1", "--dry-run", "--no-zoo")
    jobs = [line.split() for line in said.splitlines() if line.endswith("counted") or " counted " in line]
    assert len(jobs) == 25  # five trainings, and four defences under five attacks
    assert "20 under CW and N Attack" in said  # what is not as in the paper
    assert not list(tmp_path.iterdir())


def test_the_list_names_every_item_below_its_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    from classwise.studies.reproduction import reproduce

    monkeypatch.setattr(reproduce, "hours", lambda plan, zoo: 1.0)
    monkeypatch.setenv("COLUMNS", "200")
    lines = run("reproduce", "--list").splitlines()
    for item in published.items():
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{item.id} "))
        above = [line for line in lines[:place] if line in {other.citation for other in published.items()}]
        assert above[-1] == item.citation


def test_reproduce_asks_which() -> None:
    with pytest.raises(UserError, match="--list names them"):
        CliRunner().invoke(app, ["reproduce"], catch_exceptions=False)
