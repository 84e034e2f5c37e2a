"""One file of the user's adds one thing, and the command line takes it wherever it takes a shipped one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from classwise.cli.main import main
from classwise.models import read_checkpoint

FILES = {
    "darker.py": '''
from __future__ import annotations

from dataclasses import dataclass

from classwise.attacks.attack import Model, Rows
from classwise.attacks.fgsm import Fgsm
from classwise.core.threat import Ball


@dataclass(frozen=True)
class Darker(Fgsm):
    """Every pixel as dark as a part of the ball allows."""

    part: float = 1.0

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        radius = self.part * rows["eps"][:, None, None, None]
        return {**rows, "x_adv": (rows["x"] - radius).clamp(0, 1)}


def brighter(model, x, y, eps, part=1.0):
    return (x + part * eps).clamp(0, 1)
''',
    "hard.py": '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classwise.methods import Batch, Loss, State
from classwise.methods.madry import Madry


@dataclass(frozen=True)
class Hard(Madry):
    """Adversarial training that counts the hardest images twice."""

    counts: Literal["twice", "thrice"] = "twice"

    def loss(self, model, batch: Batch, state: State) -> Loss:
        found = super().loss(model, batch, state)
        hard = found.value > found.value.median()
        return found._replace(value=found.value * (1 + hard * (1 if self.counts == "twice" else 2)))
''',
    "gini.py": '''
"""Measures of inequality."""

import numpy as np

from classwise.metrics import accuracy
from classwise.metrics.metric import Shown

SHOWN = Shown(title="Gini", digits=3)


def gini(records):
    """Gini coefficient of the class accuracies."""
    values = accuracy.seen(records)
    return float(np.abs(values[:, None] - values).mean() / (2 * values.mean())) if values.any() else 0.0
''',
    "net.py": """
from torch import nn


def make(num_classes, in_channels, width=4):
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9 * width, num_classes)
    )
""",
    "halves.py": '''
import numpy as np

from classwise.data import load as load_data


def load(split, levels=1):
    """Digits, with one label for the small and one for the large ones; so many grey levels darker."""
    digits = load_data("digits", split=split)
    x, y = digits.batch(np.arange(40))
    return (x - levels / 255).clamp(0, 1), (y >= 5).long()
''',
    "bars.py": '''
import altair as alt


def draw(audits, attack=None, colour="teal"):
    """The accuracy of every class as a bar."""
    (audit,) = audits.values()
    return alt.Chart(audit.by_class(attack)).mark_bar(color=colour).encode(x="class", y="accuracy")
''',
    "spread.py": '''
from dataclasses import dataclass

import pandas as pd

from classwise.metrics import mcd
from classwise.studies.runner.graph import DeriveJob
from classwise.studies.runner.result import StudyResult
from classwise.studies.runner.study import OfModels


def note(folder, environment, text):
    (folder / "note.txt").write_text(text)


@dataclass(frozen=True, kw_only=True)
class Spread(OfModels):
    """How far the classes are apart.

    attack: under which attack.
    """

    attack: str = "fgsm"

    def jobs(self):
        audits = [model.audit("audit", [self.attack], per_class=self.per_class) for model in self.models()]
        return [*audits, DeriveJob("note", f"{__file__}:note", {"text": "done"})]

    def result(self, done):
        rows = [{"model": m.name, "mcd": mcd.compute(done.audit(f"{m.name}-audit").rows())} for m in self.models()]
        return StudyResult({"spread": pd.DataFrame(rows)})
''',
    "plan.py": '''
"""A training of a second."""

QUICK = {
    "data": {"name": "digits", "per_class": 8, "validation": 2},
    "model": {"spec": "net.py:make"},
    "threat": {"eps": 0.1},
    "method": {"name": "hard.py:Hard", "steps": 2},
    "train": {"epochs": 1, "batch": 20},
    "validate": {"attack": ["darker.py:Darker,part=0.5"]},
}
''',
}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    for name, text in FILES.items():
        (folder / name).write_text(text.lstrip())
    return folder


@pytest.fixture
def classwise(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["classwise", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), *capsys.readouterr()

    return run


def audit(*more: str) -> list[str]:
    return ["audit", "--model", "net.py:make,width=3", "--data", "digits", "--per-class", "4", "--eps", "0.1", *more]


@pytest.fixture
def audited(here: Path, classwise: Command) -> str:
    if not (here / "run").exists():
        code, _, err = classwise(*audit("--attack", "fgsm", "--out", "run"))
        assert (code, err) == (0, "")
    return "run"


def test_an_attack_that_is_a_class_or_a_function(classwise: Command) -> None:
    chosen = ("darker.py:Darker,part=0.5", "darker.py:Darker", "darker.py:brighter,part=0.5")
    code, out, err = classwise(*audit(*(word for spec in chosen for word in ("--attack", spec)), "--json"))
    assert (code, err) == (0, "")
    found = json.loads(out)["attacks"]
    names = ["darker.py:Darker:part=0.5", "darker.py:Darker", "darker.py:brighter"]
    assert list(found) == ["clean", *names]
    assert found[names[0]]["settings"]["name"] == "darker.py:Darker"


@pytest.mark.slow
def test_a_method_a_recipe_and_an_attack_to_validate_with(classwise: Command, here: Path) -> None:
    code, _, err = classwise("train", "plan.py:QUICK", "--out", "trained", "--set", "method.counts=thrice")
    assert code == 0, err
    stored = read_checkpoint(here / "trained" / "best.pt")["classwise"]["extra"]["training"]["method"]
    assert json.loads(stored)["name"] == "hard.py:Hard"
    assert json.loads(stored)["counts"] == "thrice"
    (here / "hard.py").rename(here / "gone.py")  # the method is not needed to audit
    try:
        code, _, err = classwise(
            "audit", "--model", "trained/best.pt", "--data", "digits", "--per-class", "4", "--attack", "fgsm", "--trust"
        )
    finally:
        (here / "gone.py").rename(here / "hard.py")
    assert code == 0, err


@pytest.mark.slow
def test_a_method_in_a_recipe_of_toml(classwise: Command, here: Path) -> None:
    changes = ("method.name=hard.py:Hard", "model.spec=net.py:make", "train.epochs=1", "data.per_class=24")
    words = [word for change in changes for word in ("--set", change)]
    code, out, err = classwise("train", "desk/digits/madry", *words, "--dry-run")
    assert (code, err) == (0, "")
    (here / "mine.toml").write_text(out)
    assert classwise("train", "mine.toml", "--dry-run")[:2] == (0, out)
    assert 'name = "hard.py:Hard"' in out
    code, _, err = classwise("train", "mine.toml", "--set", "method.counts=once", "--dry-run")
    assert (code, "unknown value of hard.py:Hard.counts 'once'" in err) == (2, True)


@pytest.mark.slow
def test_a_metric_in_terminal_page_and_gate(classwise: Command, audited: str, here: Path) -> None:
    code, out, err = classwise(
        "show", audited, "--require", "gini.py:gini<0.99", "--require", "clean.gini.py:gini>=0.95"
    )
    assert code == 1
    assert "MCD (%)   Gini" in out
    assert "gini.py:gini<0.99: holds (gini.py:gini under fgsm is 0." in err
    assert "clean.gini.py:gini>=0.95: FAILED (gini.py:gini under clean is 0." in err
    assert "Gini" in classwise("show", audited, "--metric", "gini.py:gini")[1]
    code, _, err = classwise("report", audited, "--metric", "gini.py:gini", "--out", "page.html")
    assert (code, err) == (0, "")
    assert ">Gini<" in (here / "page.html").read_text(encoding="utf-8")
    assert "Gini" in classwise(*audit("--attack", "fgsm", "--require", "gini.py:gini<0.99"))[1]


def test_a_data_set_and_a_model(classwise: Command) -> None:
    code, out, err = classwise(*audit()[:4], "halves.py:load,levels=3", "--attack", "fgsm", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["classes"] == ["0", "1"]
    code, _, err = classwise(*audit()[:4], "halves.py:load,level=3")
    assert (code, "unknown setting of halves.py:load 'level'; did you mean 'levels'" in err) == (2, True)


def test_a_figure(classwise: Command, audited: str, here: Path) -> None:
    code, _, err = classwise("figure", "bars.py:draw", audited, "--out", "bars.svg", "--set", "colour=orange")
    assert (code, err) == (0, "")
    assert "orange" in (here / "bars.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_study(classwise: Command, here: Path) -> None:
    code, out, _ = classwise("study", "spread.py:Spread", "--help")
    assert (code, "under which attack" in out) == (0, True)
    classwise("train", "plan.py:QUICK", "--out", "trained")
    words = ("--model", "trained/best.pt", "--per-class", "3", "--trust")
    code, out, err = classwise("study", "spread.py:Spread", *words)
    assert code == 0, err
    assert "spread" in out
    assert (here / "runs" / "Spread" / "tables" / "spread.csv").is_file()
