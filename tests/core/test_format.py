"""Numbers as text: rounded once, by the rule that JavaScript follows too."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import classwise
from classwise.core import format as text

ASSETS = Path(classwise.__file__).parent / "show" / "page" / "assets"
SHARES = (0, 1, 0.0005, 0.00049, 0.0255, 0.02546, 0.125, 0.145, 0.0625, 0.5125, 0.99951, 0.9995, 0.9994, 1e-9, 1 / 3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0.0%"),
        (1, "100.0%"),
        (0.182, "18.2%"),
        (0.0625, "6.3%"),  # 6.25 is exact in binary: a true half, which Python itself would round to 6.2
        (0.0255, "2.5%"),  # 100 · 0.0255 is 2.5499999999999998
        (0.02546, "2.5%"),  # not 2.6, which it would be if it were cut to 0.0255 and then rounded up
        (0.0005, "0.1%"),
        (0.00049, "<0.1%"),
        (0.99951, ">99.9%"),
        (0.9994, "99.9%"),
        (float("nan"), "–"),
        (None, "–"),
        (np.float32(0.25), "25.0%"),
    ],
)
def test_percent(value: float | None, said: str) -> None:
    assert text.percent(value) == said


def test_percent_without_decimals() -> None:
    values = (0.125, 0.004, 0.005, 0.994, 0.996, 1.0, 0.0)
    assert [text.percent(value, 0) for value in values] == ["13%", "<1%", "1%", "99%", ">99%", "100%", "0%"]


def test_interval_and_differences() -> None:
    assert text.interval(0.0489, 0.1924) == "4.9–19.2%"
    assert text.interval(0, 0.0041) == "0.0–0.4%"
    assert text.interval(float("nan"), 1) == "–"
    assert [text.points(value) for value in (0.3, -0.0125, 0.0, float("nan"))] == ["+30.0", "−1.3", "+0.0", "–"]
    assert (text.distance(-0.0125), text.distance(float("nan"))) == ("1.3", "–")
    assert (text.fixed(-0.125, 2), text.fixed(float("nan"), 2), text.fixed(2, 3, True)) == ("−0.13", "–", "+2.000")


def test_p_values_and_probabilities() -> None:
    assert [text.p_value(p) for p in (0.0009, 0.001, 0.0125, 1.0, float("nan"))] == [
        "<0.001", "0.001", "0.013", "1.000", "–",
    ]  # fmt: skip
    assert [text.p_equals(p) for p in (0.0009, 0.05, float("nan"))] == ["p < 0.001", "p = 0.050", "p is not defined"]
    assert [text.probability(p) for p in (0, 1e-9, 0.005, 0.994, 0.996, 1)] == [
        "<0.01", "<0.01", "0.01", "0.99", ">0.99", ">0.99",
    ]  # fmt: skip


def test_levels() -> None:
    assert [text.level(value) for value in (0.95, 0.999, 0.9, 0.995)] == ["95%", "99.9%", "90%", "99.5%"]
    assert [text.alpha(value) for value in (0.95, 0.999)] == ["0.05", "0.001"]


@pytest.mark.parametrize(
    ("eps", "said"),
    [(8 / 255, "8/255"), (float(np.float32(8 / 255)), "8/255"), (0.031, "0.031"), (0.2, "0.2"), (1.0, "1"),
     (0.5, "0.5"), (0.15, "0.15"), (0.123456, "0.1235"), (0.0, "0")],
)  # fmt: skip
def test_radius(eps: float, said: str) -> None:
    assert text.radius(eps) == said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script outside a browser, by node")
def test_the_page_writes_every_share_as_python_does() -> None:
    values = [*SHARES, *(k / n for n in (7, 40, 80, 400, 1000) for k in range(n + 1))]
    program = (ASSETS / "dom.js").read_text(encoding="utf-8")
    program += f"\nconst values = {json.dumps(values)};"
    program += "\nconsole.log(JSON.stringify(values.map((v) => [percent(v), percent(v, 0)])));"
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[text.percent(value), text.percent(value, 0)] for value in values]


def test_times_and_memory_are_in_the_unit_people_would_choose() -> None:
    seconds = {math.nan: "?", 1.46: "1.5 s", 45.4: "45 s", 720: "12 min", 11_520: "3.2 h", 2e6: "23 days"}
    assert [text.duration(value) for value in seconds] == [*seconds.values()]
    assert [text.memory(value) for value in (math.nan, 512.4, 3482)] == ["?", "512 MB", "3.4 GB"]


#: What turns a share, a p-value or a confidence into text by itself.
_BY_HAND = re.compile(r":[+.\d]*%\}|\{100 \* [^}]*f\}|<0\.001|\bp = \{|p:\.\d")
_SHARE = re.compile(r":[+.\d]*%\}")
_OTHERS = ("studies", "published")  # their tables have rules of their own for all but shares


def test_nothing_else_turns_shares_into_text() -> None:
    root = Path(classwise.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.name == "format.py":
            continue
        pattern = _SHARE if path.relative_to(root).parts[0] in _OTHERS else _BY_HAND
        found = pattern.findall(path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(root)}: {found}; use classwise.core.format"
