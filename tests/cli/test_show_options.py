"""What the terminal shows of finished audits: which classes, in which order, at which width; and the help in panels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.data.images import ArrayPixels, Images

NAMES = [f"Speed limit ({k} km/h), temporary restriction" for k in range(43)]


def invoke(*arguments: object, columns: int = 80, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Audits of 43 classes with long names: two of one radius, and one along radii."""
    folder, rng = tmp_path_factory.mktemp("shown"), np.random.default_rng(0)
    labels = np.arange(43).repeat(4)
    means = rng.random((43, 1, 4, 4))
    pixels = np.clip(means[labels] + 0.2 * rng.normal(size=(len(labels), 1, 4, 4)), 0, 1).astype(np.float32)
    images = Images(ArrayPixels(pixels), labels, tuple(NAMES), "signs")
    for name, scale, eps in (
        ("a", 1.0, "4/255"),
        ("b", 0.5, "4/255"),
        ("grid", 1.0, "1/255,2/255,4/255,8/255,12/255,16/255"),
    ):
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 43))
        with torch.no_grad():
            weight = torch.from_numpy(means.reshape(43, 16)).float()
            net[1].weight.copy_(weight * scale)
            net[1].bias.copy_(-(weight**2).sum(1) / 2)
        cw.audit(net, images, ["fgsm"], eps=eps, out=folder / name, progress=False)
    return folder


def classes(text: str) -> list[str]:
    """The lines of the first table of classes, without its head."""
    lines = text.splitlines()
    return lines[2 : next(place for place, line in enumerate(lines) if line.startswith("bars:"))]


def test_all_shows_every_class(runs: Path) -> None:
    assert len(classes(invoke("show", runs / "a"))) == 25
    assert len(classes(invoke("show", runs / "a", "--all"))) == 43
    assert "--all shows every class" in invoke("show", runs / "a")
    assert "--all shows every class" not in invoke("show", runs / "a", "--all")


def test_sort_gives_the_order(runs: Path) -> None:
    lines = classes(invoke("show", runs / "a", "--all", "--sort", "data", columns=200))
    assert [line.partition("  ")[0] for line in lines] == NAMES
    assert "did you mean 'robust'" in invoke_error("show", runs / "a", "--sort", "robustt")


def invoke_error(*arguments: object) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code != 0
    return str(done.exception)


def test_class_shows_one_under_every_attack(runs: Path) -> None:
    text = invoke("show", runs / "a", "--class", NAMES[7], columns=120)
    assert len(classes(text)) == 1
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("clean ", "fgsm "))] == ["clean", "fgsm"]
    assert f"unknown class '{NAMES[7][:-1]}'; did you mean" in invoke_error(
        "show", runs / "a", "--class", NAMES[7][:-1]
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_wider_than_the_terminal_and_no_number_is_cut(runs: Path, columns: int) -> None:
    for command in (("show", "a"), ("show", "grid"), ("compare", "a", "b"), ("leaderboard", "a", "b")):
        name, *given = command
        text = invoke(name, *(runs / run for run in given), columns=columns)
        for line in text.splitlines():
            path = str(runs) in line  # a path is printed whole, to be copied
            assert len(line.rstrip()) <= columns or path, (command, line)
            assert "%…" not in line
            assert ".…" not in line


def test_radii_are_written_as_levels(runs: Path) -> None:
    text = invoke("show", runs / "grid", columns=120)
    head = next(line for line in text.splitlines() if line.startswith("class ") and "median" in line)
    assert head.split()[1:8] == ["clean", "1/255", "2/255", "4/255", "8/255", "12/255", "16/255"]
    assert "linf eps 16/255" in text
    assert "0.01" not in head


@pytest.mark.parametrize(
    ("command", "panels"),
    [
        ((), ["Audits", "Better models", "Papers", "What there is"]),
        (("audit",), ["Model", "Data", "Threat", "Attacks", "Statistics", "Resources", "Output", "Gate"]),
        (("show",), ["Classes", "Output", "Gate"]),
        (("compare",), ["Groups over seeds", "Output"]),
        (("report",), ["Groups over seeds", "Output"]),
        (("repair",), ["Model", "Data", "Goal"]),
        (("train",), ["Model", "Data"]),
        (("study",), ["What is used", "Resources"]),
    ],
)
def test_help_is_in_panels(command: tuple[str, ...], panels: list[str]) -> None:
    text = invoke(*command, "--help")
    found = [line.split("─ ")[1].split(" ─")[0] for line in text.splitlines() if line.startswith("╭─ ")]
    assert set(panels) <= set(found), found


def test_the_zoo_fits_the_terminal_and_is_a_line_for_each_model_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from classwise.models import zoo

    row = {"name": "cifar10/resnet16/class_offsets_tuned-0", "data": "cifar10", "worst class": "33.3% automobile"}
    attack = "pgd-20 + autoattack-standard, linf 8/255"
    monkeypatch.setattr(zoo, "rows", lambda: [{**row, "attack": attack}])
    _, *lines = invoke("list", "zoo").splitlines()
    assert len(lines) == 1
    assert all(text in lines[0] for text in (*row.values(), attack))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    text = re.sub(r"\x1b\[[0-9;]*m", "", invoke("list", "zoo"))
    assert max(map(len, text.splitlines())) <= 80
    assert all(word in text for word in (*row.values(), attack))
