"""A repair on the command line, on the page and as a figure."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pandas as pd
import pytest
from tilted import EPS, Rows, images
from torch import Tensor, nn
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.core.format import points
from classwise.core.repair_folder import RepairFolder
from classwise.repairing.config import RepairConfig
from classwise.repairing.repair import repair_by
from classwise.show import figures, repair
from classwise.show.page import build as build_page

pytestmark = pytest.mark.slow  # repairs models


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> cw.RepairResult:
    out = tmp_path_factory.mktemp("shown") / "run"
    return cw.repair(Rows(), images(), "pgd-5", EPS, out=out, rounds=3, front=True)


def folder(found: cw.RepairResult) -> RepairFolder:
    assert found.folder is not None
    return RepairFolder(found.folder)


def invoke(*arguments: object) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def drawn(chart: figures.Chart) -> pd.DataFrame:
    """The rows of the chart's points, in the order they are drawn in."""
    whole = chart.to_dict()
    return pd.DataFrame(json.loads(whole["datasets"][whole["layer"][-1]["data"]["name"]]))


def test_show_prints_it_again(found: cw.RepairResult, tmp_path: Path) -> None:
    text = invoke("show", folder(found).path, "--csv", tmp_path / "classes.csv")
    for part in ("bottom", "worst class", "Worst class against average", "← taken", "best.pt"):
        assert part in text
    assert "difference_low" in (tmp_path / "classes.csv").read_text()
    assert json.loads(invoke("show", folder(found).path, "--json"))["chosen"] == found.chosen


def test_a_notebook_shows_it(found: cw.RepairResult) -> None:
    shown = found._repr_html_()
    assert shown.startswith("<div><p><strong>")
    assert html.escape(found.sentences()[0]) in shown
    assert shown.count("linear-gradient(to right") == len(found.by_class())
    assert found.chart().to_dict() == figures.from_repairs("front", {"repair": found}).to_dict()


def test_its_classes_are_arranged_as_an_audits(found: cw.RepairResult) -> None:
    one = found.by_class()["class"].iloc[1]
    lines = invoke("show", folder(found).path, "--class", one).splitlines()
    assert lines[2].startswith(one)
    assert lines[3].startswith("* beyond chance") or lines[3].startswith("class")


def test_each_change_is_a_line_where_there_is_no_bar(tmp_path: Path) -> None:
    told: list[str] = []
    config = RepairConfig.of(model=Rows(), data=images(), attacks="pgd-5", eps=EPS, rounds=2)
    repair_by(config, say=told.append)
    lines = [line for line in told if "on the calibration images" in line]
    assert lines[0].startswith("unchanged: worst class ")
    assert lines[1].startswith("change 1 of at most ")
    assert told[-1] == "auditing the model before and after on the judging images"
    quiet: list[str] = []
    config = RepairConfig.of(model=Rows(), data=images(), attacks="pgd-5", eps=EPS, rounds=2, progress=False)
    repair_by(config, say=quiet.append)
    assert quiet == [line for line in told if line not in lines and line != told[-1]]


def test_progress_false_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    cw.repair(Rows(), images(), "pgd-5", EPS, rounds=1, progress=False)
    assert capfd.readouterr() == ("", "")


def test_its_audits_are_shown_and_compared_as_any(found: cw.RepairResult) -> None:
    assert "bottom" in invoke("show", folder(found).after)
    assert "after" in invoke("compare", folder(found).before, folder(found).after)


def test_the_front_is_a_table_with_intervals_and_a_figure(found: cw.RepairResult, tmp_path: Path) -> None:
    table = found.front()
    assert table["average"].is_monotonic_decreasing
    assert table["worst"].is_monotonic_increasing
    assert ((table["worst_low"] <= table["worst"]) & (table["worst"] <= table["worst_high"])).all()
    assert table["chosen"].sum() == 1
    assert (found.rounds["kind"] == "between").sum() == 7
    assert "← taken" in repair.front_text(found).to_string()
    assert "robust accuracy of the worst class" in folder(found).front_figure.read_text(encoding="utf-8")
    marks = drawn(figures.front.draw(found))["kind"].tolist()
    assert marks[-3:] == ["taken", "judged before", "judged after"]  # on top of what has the same accuracies
    invoke("figure", "front", folder(found).path, "--out", tmp_path / "again.svg")
    text = (tmp_path / "again.svg").read_text(encoding="utf-8")
    for part in ("taken", "judged before", "judged after"):
        assert part in text


def test_the_sentences_name_the_classes_that_changed_beyond_chance() -> None:
    many = cw.repair(Rows(), images(8), "pgd-5", EPS, rounds=1)
    changed = many.by_class().query("change != ''")
    assert "bottom" in set(changed["class"])
    said = " ".join(many.sentences())
    for name, difference in zip(changed["class"], changed["difference"], strict=True):
        assert f"{name}: {points(difference)}" in said
    assert "Holm-corrected" in said


def test_the_page_begins_with_the_repair(found: cw.RepairResult, tmp_path: Path) -> None:
    page = build_page([folder(found).path], tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.index('<section id="repair"') < page.index('<section id="classes"')
    assert page.index('href="#repair"') < page.index('href="#classes"')


def test_the_page_shows_the_trade_class_by_class(found: cw.RepairResult, tmp_path: Path) -> None:
    page = html.unescape(build_page([folder(found).path], tmp_path / "page.html").read_text(encoding="utf-8"))
    for part in (*found.sentences(), "calibration − judged", "which classes gained and lost", "What an attacker"):
        assert part in page
    for section in ("repair", "classes", "comparison"):
        assert f'<section id="{section}"' in page
    both = build_page([folder(found).path, folder(found).before], tmp_path / "both.html").read_text(encoding="utf-8")
    assert "run after" in both


def test_what_is_wrong_with_the_model_is_said(tmp_path: Path) -> None:
    """A model whose weights were forgotten, and too few images to judge it."""
    model = ["--model", "resnet:width=4,blocks=[1]"]
    options = ["--data", "digits", "--limit", "20", "--eps", "0.1", "--attack", "pgd-3", "--rounds", "1"]
    text = " ".join(invoke("repair", *model, *options, "--out", tmp_path / "run").split())
    assert "error: Clean accuracy is" in text
    assert "Check the weights" in text
    assert "have fewer than 30 images" in text
    assert "as few as 1 of" in text
    stored = json.loads(RepairFolder(tmp_path / "run").result_file.read_text())
    assert {"near_chance", "few_images"} <= {finding["code"] for finding in stored["findings"]}
    page = build_page([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Check the weights" in page


def test_what_is_wrong_with_the_images_is_said_before_anything_is_attacked() -> None:
    said: list[str] = []

    class Softmax(Rows):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).softmax(1)

    config = RepairConfig.of(model=Softmax(), data=images(), attacks="pgd-2", eps=EPS, rounds=1)
    found = repair_by(config, say=said.append)
    assert any(sentence.startswith("error: The model's outputs look like probabilities") for sentence in said)
    assert "probabilities" in {finding.code for finding in found.cautions()}


def test_classes_that_tie_are_named_together() -> None:
    even = Rows()
    nn.init.zeros_(even.linear.bias)
    tied = cw.repair(even, images(), "pgd-5", 0.5, rounds=1)
    assert tied.chosen == 0
    assert repair.attacker(tied) == (
        "What an attacker can still do: of the images of each of the 3 classes that tie (top, middle, bottom) 100.0% "
        "are misclassified under pgd-5."
    )


def test_a_model_that_was_left_alone_is_not_called_repaired(tmp_path: Path) -> None:
    even = Rows()
    nn.init.zeros_(even.linear.bias)
    cw.repair(even, images(), "pgd-5", 0.5, rounds=1, out=tmp_path / "run")
    text = invoke("show", tmp_path / "run")
    assert "The model, unchanged:" in text
    assert "The repaired model" not in text


def test_the_command_repairs(tmp_path: Path) -> None:
    options = ["--data", "digits", "--per-class", "12", "--eps", "0.1", "--attack", "pgd-3", "--rounds", "2"]
    model = ["--model", "resnet:width=4,blocks=[1]", "--min", "3=0.01", "--keep-average", "0.5"]
    text = invoke("repair", *model, *options, "--out", tmp_path / "run")
    assert f"classwise audit --model {tmp_path / 'run' / 'best.pt'} --data digits --eps 0.1 --attack pgd-3" in text
    assert f"--attack pgd-3 --out {tmp_path / 'run'}-audit" in text
    assert "±31.2 points" in " ".join(text.split())
    assert "would contain the images that the change was fitted on" in " ".join(text.split())
    command = RepairFolder(tmp_path / "run").config()["command"]
    assert command["min"] == ["3=0.01"]
    assert command["keep_average"] == 0.5
    assert invoke("repair", *model, *options, "--out", tmp_path / "run", "--json")
    refused = CliRunner().invoke(app, ["repair", *model, *options])
    assert "give --out FOLDER" in str(refused.exception)
