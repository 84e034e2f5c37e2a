"""The first screen of README.md: its code prints what it shows, and draws the picture beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_blocks import ROOT, blocks

README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "readme.svg"
_IMAGES = 3  # of a class, by which another processor's rounding may change a count; no class has fewer than 34


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def accuracies(svg: str) -> dict[tuple[str, str], float]:
    """What a picture says of each class, clean and robust, in percent."""
    found = re.findall(r'aria-label="class: (\w+); kind: (clean|robust) accuracy; value: ([\d.]+)%', svg)
    return {(name, kind): float(value) for name, kind, value in found}


@pytest.mark.slow
def test_the_first_screen_is_a_real_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _install, code, output, *_ = blocks(README)
    assert (code.language, output.language) == ("python", "text")
    lines = [line for line in code.text.splitlines() if line]
    assert len(lines) == 5
    exec(compile(code.text, str(README), "exec"), {})
    printed, shown = " ".join(capsys.readouterr().out.split()), " ".join(output.text.split())
    assert re.sub(r"[\d.]+", "#", printed.partition(";")[0]) == re.sub(r"[\d.]+", "#", shown.partition(";")[0])
    assert numbers(printed)[1] == numbers(shown)[1], "the class"
    assert numbers(printed)[2] == pytest.approx(numbers(shown)[2], abs=100 * _IMAGES / 34)
    drawn, kept = (accuracies(path.read_text(encoding="utf-8")) for path in (tmp_path / "classes.svg", PICTURE))
    assert len(kept) == 20
    assert drawn == pytest.approx(kept, abs=100 * _IMAGES / 34)


def test_the_words_under_the_picture_are_what_it_shows() -> None:
    kept = accuracies(PICTURE.read_text(encoding="utf-8"))
    (about,) = re.findall(r"!\[(.*)\]\(docs/images/readme\.svg\)", README.read_text(encoding="utf-8"))
    least, name, robust = map(int, re.findall(r"\d+", about))
    assert all(value > least for (_, kind), value in kept.items() if kind == "clean")
    assert (str(name), robust) == min(
        ((own, int(value)) for (own, kind), value in kept.items() if kind == "robust"), key=lambda pair: pair[1]
    )


def test_the_home_page_shows_the_same() -> None:
    assert "made from the source: first_screen" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert README.read_text(encoding="utf-8").count("first screen -->") == 2
