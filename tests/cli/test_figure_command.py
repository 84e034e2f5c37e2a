"""Every figure that is listed is drawn by the command, from small real audits, trainings and studies."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import classwise as cw
from classwise import studies
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.show import figures
from classwise.show.figures import frames
from quick import QUICK

#: The study that leaves the table of a figure, and its options; models are filled in.
STUDIES = {
    "temperature": ("temperature", {"inv_temperature": [1, 10], "attack": "pgd-4", "per_class": 4, "image": 33}),
    "sweep": ("weight", {"recipe": "desk/digits/madry", "class_name": ["3"], "weight": [0.5, 1.0], "set": QUICK}),
    "weight_norm": ("weight-norm", {"attack": "pgd-2", "per_class": 4}),
    "similarity": ("similarity", {"attack": "pgd-2", "per_class": 4, "permutations": 9}),
    "corruptions": ("corruptions", {"corruption": ["contrast", "gaussian_noise"], "severity": [1, 5], "per_class": 3}),
    "features": ("tsne", {"attack": "pgd-2", "per_class": 4, "perplexity": 5, "neighbours": 3}),
    "background": ("background", {"part": "mnist", "pairing": ["pairs"], "mnist_recipe": "desk/digits/trades"}),
}  # fmt: skip
#: Figures of the same study as another's.
SAME = {"confidence_path": "temperature"}
#: What a reader looks for in the drawing besides the classes.
WORDS = {"temperature": "1/T", "confidence_path": "step 2", "sweep": "weight of 3", "corruptions": "contrast",
         "background": "pgd-2", "weight_norm": "norm of the weights", "discrepancy": "difference from the average",
         "panels": "difference", "features": "adversarial", "front": "worst class"}  # fmt: skip


@pytest.fixture(scope="module")
def study_of(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the study that a figure is drawn from, done once."""
    home, done = tmp_path_factory.mktemp("studies"), dict[str, Path]()

    def folder(figure: str) -> Path:
        kind = SAME.get(figure, figure)
        if kind not in done:
            name, options = STUDIES[kind]
            given: dict[str, object] = {"model": [str(models["madry"])]} if kind not in ("sweep", "background") else {}
            if kind == "background":
                given = {"mnist_set": [*QUICK], "mnist_attack": "pgd-2", "per_class": 4}
            studies.run(studies.parse(name, {**options, **given}), home / kind)
            done[kind] = home / kind
        return done[kind]

    return folder


@pytest.fixture(scope="module")
def audited(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audits") / "madry"
    cw.audit(
        str(models["madry"] / "best.pt"), "digits", "pgd-4", "0.05,0.5", per_class=6, out=out, save_adversarial=True
    )
    return out


@pytest.fixture(scope="module")
def repaired(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("repairs") / "madry"
    cw.repair(str(models["madry"] / "best.pt"), "digits", "pgd-4", 0.1, per_class=6, rounds=1, out=out)
    return out


def drawn(arguments: list[str], out: Path) -> str:
    done = CliRunner().invoke(app, ["figure", *arguments, "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    return out.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", figures.names())
def test_it_is_drawn_from_what_it_says(
    name: str,
    models: dict[str, Path],
    audited: Path,
    repaired: Path,
    study_of: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    options = ["--set", "state=weight"] if name == "class_state" else []
    for kind in figures.sources(name):
        if kind == "studies":
            given = [str(study_of("background" if name == "panels" else name))]
        elif kind == "groups":
            copies = {group: [tmp_path / f"{group}-{seed}" for seed in (0, 1)] for group in ("a", "b")}
            for folder in itertools.chain(*copies.values()):
                shutil.copytree(audited, folder)
            given = [word for group in copies for word in ("--group", f"{group}={tmp_path}/{group}-*")]
        else:
            given = [str({"audits": audited, "repairs": repaired, "histories": models["madry"]}[kind])]
        svg = drawn([name, *given, *options], tmp_path / "figure.svg")
        said = re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", svg)
        assert "undefined" not in svg
        assert len(said) > 4 or "<image" in svg
        if kind == figures.sources(name)[0]:
            assert any(WORDS.get(name, "") in text for text in said), said


@pytest.mark.parametrize("name", ["weight_norm", "temperature"])
def test_the_command_draws_the_studys_own_figure_again(
    name: str, study_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = study_of(name)
    again = drawn([name, str(folder)], tmp_path / "again.svg")
    assert again == (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_the_command_draws_the_steps_and_the_axis_that_the_study_did(
    study_of: Callable[[str], Path], tmp_path: Path
) -> None:
    path = drawn(["confidence_path", str(study_of("confidence_path"))], tmp_path / "path.svg")
    assert re.findall(r">(step \d+)<", path) == ["step 1", "step 2", "step 4"]
    assert figures.sweep.wants_log([0.05, 1])
    assert not figures.sweep.wants_log([0.5, 1])
    assert not figures.sweep.wants_log([0, 100])


def test_digits_stand_in_front_of_their_colours(study_of: Callable[[str], Path]) -> None:
    frame = frames.read([study_of("background")])["background"]["panels"]
    own = frame[frame["row"] == "pairs"]
    assert list(own["column"]) == [str(digit) for digit in range(10)]
    assert own["caption"].tolist()[:4] == ["red", "red", "lime", "lime"]
    assert all(text.startswith("data:image/png;base64,") for text in frame["image"])


@pytest.mark.parametrize("name", ["7", "null", "07", "NA"])
def test_names_that_look_like_numbers_or_nothing_stay_names(name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "study.md").touch()
    (tmp_path / "data" / "weight_norm.csv").write_text(f"model,class,accuracy,norm\nm,{name},0.5,1\nm,b,,2\n")
    frame = frames.read([tmp_path])[tmp_path.name]["weight_norm"]
    assert frame["class"].tolist() == [name, "b"]
    assert frame["accuracy"].isna().tolist() == [False, True]


def test_a_folder_of_another_kind_is_told(audited: Path, study_of: Callable[[str], Path], tmp_path: Path) -> None:
    def message(*arguments: object) -> str:
        done = CliRunner().invoke(app, ["figure", *map(str, arguments), "--out", str(tmp_path / "a.svg")])
        assert isinstance(done.exception, UserError)
        return str(done.exception)

    assert "is no folder of a finished study" in message("temperature", audited)
    assert "left no table of temperature; there is weight_norm" in message("temperature", study_of("weight_norm"))
    assert "unknown model 'mdary'; did you mean 'madry'" in message(
        "weight_norm", study_of("weight_norm"), "--set", "model=mdary"
    )


def test_the_steps_and_the_temperature_that_are_followed_can_be_chosen(models: dict[str, Path], tmp_path: Path) -> None:
    both = [str(folder) for folder in models.values()]
    options = {"inv_temperature": [1, 10, 50], "attack": "pgd-4", "per_class": 3, "image": 33, "model": both}
    outcome = studies.run(studies.parse("temperature", {**options, "followed": 10, "steps": [1, 4]}), tmp_path / "s")
    path = outcome.data["confidence_path"]
    assert set(path["attack"]) == {"PGD", "Temperature-PGD, 1/T = 10"}
    assert set(path["image"]) == {33}
    svg = (tmp_path / "s" / "figures" / "path_of_models.svg").read_text(encoding="utf-8")
    assert re.findall(r">(step \d+)<", svg) == ["step 1", "step 4"]
    assert "standard, PGD" in svg
    assert "madry, PGD" in svg
    with pytest.raises(UserError, match=r"--followed 3 is not in the grid of 1/T other than 1: 10, 50"):
        studies.parse("temperature", {**options, "followed": 3}).jobs()
