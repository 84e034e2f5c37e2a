"""A run folder is enough to resume its training, to train the same again, and to audit what was trained."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import RECIPE, content, history, run, small, start, written
from torch import nn

import classwise as cw
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.core.spec import exact, number
from classwise.models import read_checkpoint
from classwise.training.audit_command import audit_command, audit_data
from classwise.training.train import Trained

pytestmark = pytest.mark.slow


def command(*arguments: Any) -> None:
    app([*map(str, arguments), "--no-progress"], standalone_mode=False)


def process(folder: Path, *arguments: Any) -> str:
    """What the command prints in a process of its own."""
    log = folder / "log.txt"
    running = start(*arguments, log=log)
    running.join(300)
    assert running.exitcode == 0, log.read_text()
    return log.read_text()


def one(folder: Path, **parts: dict[str, Any]) -> dict[str, Any]:
    """One epoch, whose model is the best and the last."""
    return small(folder, **{**parts, "train": {"epochs": 1, **parts.get("train", {})}})


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs, of which the first is the best: the second one is at a rate of 0."""
    folder = tmp_path_factory.mktemp("two")
    run(small(folder, train={"schedule": "step:milestones=2,factor=1e-9"}), folder / "run")
    return folder / "run"


# ---- resuming ----------------------------------------------------------------------------------------------------


def test_resume_alone_resumes(tmp_path: Path) -> None:
    tree = small(tmp_path)
    run(tree, tmp_path / "whole")
    run({**tree, "train": {**tree["train"], "epochs": 1}}, tmp_path / "part")  # as if it had been killed after one
    config = (tmp_path / "part" / "config.toml").read_text()
    (tmp_path / "part" / "config.toml").write_text(config.replace("epochs = 1\n", "epochs = 2\n"))
    command("train", "--resume", tmp_path / "part")
    assert len(history(tmp_path / "part")) == 2
    command("train", "--resume", tmp_path / "whole")  # finished: nothing happens
    assert len(history(tmp_path / "whole")) == 2


def test_a_config_is_a_recipe(two: Path, tmp_path: Path) -> None:
    command("train", two / "config.toml", "--out", tmp_path / "again")
    assert history(two).equals(history(tmp_path / "again"))
    assert (tmp_path / "again" / "config.toml").read_text() == (two / "config.toml").read_text()


def test_the_root_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    run(one(tmp_path), tmp_path / "run", root="here")
    seen: list[Any] = []
    done = Trained(tmp_path / "run")
    monkeypatch.setattr("classwise.training.train.train", lambda *_, **given: seen.append(given["root"]) or done)
    command("train", "--resume", "run")
    command("train", "--resume", "run", "--root", "there")
    assert seen == [tmp_path / "here", Path("there")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "nowhere"], r"nowhere is no run folder of a training"),
        ([], r"which recipe\?.*--resume FOLDER"),
        (["desk/digits/trades"], r"give --out FOLDER"),
        (["--resume", "nowhere", "--overwrite"], r"leave out --out and --overwrite"),
        (["--resume", "nowhere", "--out", "there"], r"leave out --out and --overwrite"),
    ],
)
def test_what_cannot_be_resumed(arguments: list[str], message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        command("train", *arguments)
    assert not list(tmp_path.iterdir())


def test_what_python_gave_only_python_resumes(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    done = run(one(tmp_path), tmp_path / "run", model=net)
    with pytest.raises(UserError, match=r"trained with model given in Python.*cw\.train"):
        command("train", "--resume", tmp_path / "run")
    shown = audit_command(done.config, done.best)
    made = eval(shown, {"cw": cw, "model": net, "TEST_DATA": (torch.rand(4, 1, 8, 8), torch.arange(4))})
    assert made.records.meta.eps == 0.1
    for use in (done.model, done.audit):
        with pytest.raises(UserError, match=r"the model of .* was given in Python.*cw\.load_model\(model, .*best\.pt"):
            use()


def test_images_of_python_are_given_to_the_audit_too(tmp_path: Path) -> None:
    x, y = torch.rand(80, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(80) % 10
    done = run(one(tmp_path), tmp_path / "run", data=(x, y))
    with pytest.raises(UserError, match=r"the data of .* was given in Python.*audit\(data=…\)"):
        done.audit()
    found = done.audit("pgd-1", data=(x, y), eps=0.2, limit=12)
    assert (len(found.rows()), found.records.meta.eps) == (12, 0.2)


@pytest.mark.parametrize("source", [5, 1.5, object()])
def test_what_is_no_recipe(source: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no recipe|source must be"):
        cw.train(source, out=tmp_path / "run")


def test_an_older_folder_resumes(two: Path, tmp_path: Path) -> None:
    """One whose settings lack fields that came later, and all that is recorded besides the recipe."""
    folder = tmp_path / "run"
    tree = one(tmp_path)
    run(tree, folder)
    text = (folder / "config.toml").read_text()
    text = re.sub(r"(?m)^(passes|keep|mode) = .*\n", "", text).partition("[run]")[0]
    (folder / "config.toml").write_text(text)
    run(tree, folder)


def test_other_images_and_other_weights_are_named(two: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tree = one(tmp_path)
    tree["model"]["weights"] = str(two / "last.pt")
    run(tree, folder)
    config = (folder / "config.toml").read_text()
    for key, what in (("data", "the images of digits"), ("weights", r"the weights in .*last\.pt")):
        (folder / "config.toml").write_text(re.sub(rf'(?m)^{key} = "\w{{16,64}}"$', f'{key} = "{"0" * 16}"', config))
        with pytest.raises(UserError, match=rf"other settings: {what} are not those it was made with"):
            run(tree, folder)


# ---- a best.pt that is gone ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_lost_best_is_written_again(damage: str, two: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "last.pt", "previous.pt", "history.csv", "best.pt"):
        (tmp_path / name).write_bytes((two / name).read_bytes())
    before = content(two, "best.pt")
    assert before["epoch"] == 1  # what previous.pt is of
    (tmp_path / "best.pt").write_bytes(b"PK") if damage == "cut" else (tmp_path / "best.pt").unlink()
    command("train", "--resume", tmp_path)
    after = content(tmp_path, "best.pt")
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after["shown"][name]) for name, value in before["shown"].items())


def test_a_best_that_nothing_holds_is_explained(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.toml", "last.pt", "history.csv"):
        (tmp_path / name).write_bytes((two / name).read_bytes())
    with pytest.warns(UserWarning, match=r"best\.pt, the model of epoch 1, is missing.*last\.pt holds .* epoch 2"):
        command("train", "--resume", tmp_path)
    assert "last.pt" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"best\.pt is missing"):
        _ = Trained(tmp_path).best_epoch


# ---- the command at the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [8 / 255, 0.031, 0.15, 2.5 / 255, 1 / 3, 0.1 + 0.2, 1e-9, 1.0, 5, 0.5])
def test_a_radius_is_written_so_that_it_reads_back(value: float) -> None:
    assert number(exact(value)) == value
    assert exact(8 / 255) == "8/255"


def test_excluded_classes_stay_excluded() -> None:
    assert audit_data({"data": {"name": "digits", "exclude": ["3", "5"]}}) == "digits:exclude=3|5"
    assert audit_data({"data": {"name": "folder:resize=8", "exclude": ["a"]}}) == "folder:resize=8,exclude=a"


def test_the_command_shown_audits_what_was_trained(tmp_path: Path) -> None:
    """Run as it is printed, in a folder whose name needs quotes."""
    folder = tmp_path / "my runs"
    folder.mkdir()
    parts = {"threat": {"eps": 0.15, "norm": "l2"}, "data": {"exclude": ["3"]}, "model": {"normalize": "mnist"}}
    recipe = written(one(folder, **parts), folder / "recipe.toml")
    trained = process(tmp_path, "train", recipe, "--out", folder / "run", "--root", folder, "--no-progress")
    (shown,) = re.findall(r"Audit it: (.*)", trained)
    program, *arguments = shlex.split(shown)
    assert program == "classwise"
    process(tmp_path, *arguments, "--limit", 40, "--no-progress")
    found = cw.Audit.load(folder / "run-audit")
    assert (found.records.meta.eps, found.records.meta.norm) == (0.15, "l2")
    assert found.records.class_names == tuple("012456789")
    own = Trained(folder / "run", folder, trust=True).audit("pgd-20", limit=40)
    assert own.records.frame["prediction"].tolist() == found.records.frame["prediction"].tolist()
    assert "other_threat" not in {finding.code for finding in found.findings}
    assert found.adversarially_trained is True


def test_a_checkpoint_says_what_it_was_trained_against(two: Path) -> None:
    threat = read_checkpoint(two / "best.pt")["classwise"]["extra"]["training"]["threat"]
    assert threat == {"norm": "linf", "eps": RECIPE["threat"]["eps"]}
    codes = {
        eps: {
            finding.code for finding in cw.audit(two / "best.pt", "digits", "pgd-1", eps, limit=20, trust=True).findings
        }
        for eps in (0.1, "8/255")
    }
    assert "other_threat" not in codes[0.1]
    assert "other_threat" in codes["8/255"]


def test_standard_training_is_against_nothing(tmp_path: Path) -> None:
    done = run(one(tmp_path, method={"name": "standard"}), tmp_path / "run")
    found = done.audit("pgd-1", eps="8/255", limit=20)
    assert "other_threat" not in {finding.code for finding in found.findings}
    assert found.adversarially_trained is False
