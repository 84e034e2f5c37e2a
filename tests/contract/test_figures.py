"""What every figure keeps to: it says what it is, draws any audit there can be, and becomes exact files."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.records import CLEAN
from classwise.results.audit_result import Audit
from classwise.show import figures
from for_each import for_each

ODD_NAMES = (
    "<script>alert(1)</script>",
    "a.b[0]",
    'it\'s "so"',
    "x & y",
    "back\\slash",
    "[bold]",
    'datum["class"]',
    "snow ☃ → ü",
    "null",
    "7",
)
#: Its audits must have kept images; it is drawn in tests/studies/test_figure_command.py, as are those of studies.
OF_IMAGES = {"panels"}
FROM_AUDITS = [name for name in figures.names() if figures.sources(name)[0] == "audits" and name not in OF_IMAGES]
FROM_HISTORIES = [name for name in figures.names() if figures.sources(name)[0] == "histories"]
DRAWABLE = FROM_AUDITS + FROM_HISTORIES
#: These count classes and name runs only.
NAMES_NO_CLASS = {"intervals", "scatter"}

AuditOf = Callable[..., Audit]


def make(audit_of: AuditOf, support: list[int], names: tuple[str, ...], seed: int = 0, **meta: Any) -> Audit:
    """An audit of an attack at two radii, with probabilities."""
    rng = np.random.default_rng(seed)
    weak = [int(n * rng.uniform(0.1, 0.6)) for n in support]
    correct = {
        CLEAN: [max(n - 1, 0) for n in support],
        "pgd@4": [n // 2 + w // 2 for n, w in zip(support, weak, strict=True)],
    }
    correct["pgd@8"] = weak
    infos = {f"pgd@{k}": AttackInfo(settings={"name": "pgd"}, eps=k / 255, family="pgd") for k in (4, 8)}
    audit = audit_of(correct, support, names, infos)
    probs = rng.dirichlet(np.ones(len(names)), size=len(audit.records))
    changed = dataclasses.replace(audit.records.meta, **meta)
    return dataclasses.replace(audit, records=dataclasses.replace(audit.records, meta=changed, probs=probs))


def history(names: tuple[str, ...], epochs: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = {"epoch": np.arange(1, epochs + 1), "clean": 0.6, "robust": 0.4, "worst_class": names[0]}
    for what in ("clean", "robust", "weight"):
        table |= {f"{what}:{name}": rng.random(epochs) for name in names}
    return pd.DataFrame(table)


@pytest.fixture
def chart_of(audit_of: AuditOf) -> Callable[..., Any]:
    """chart_of(figure, names, support) -> a chart of two runs of these classes, or of one."""

    def chart(figure: str, names: tuple[str, ...], support: list[int] | None = None, runs: int = 2, **meta: Any) -> Any:
        titles = ("run.1", "<b>2</b>")[:runs]
        if figure in FROM_HISTORIES:
            return figures.from_histories(figure, {title: history(names) for title in titles})
        support = support or [6] * len(names)
        made = {title: make(audit_of, support, names, seed, **meta) for seed, title in enumerate(titles)}
        return figures.from_runs(figure, made)

    return chart


def svg(chart: Any, folder: Path, width: Any = None) -> str:
    return figures.save(chart, folder / "figure.svg", width).read_text(encoding="utf-8")


@for_each("name", figures.names())
def test_describes_itself_in_a_line(name: str) -> None:
    assert 20 < len(figures.describe(name)) <= 120
    assert figures.describe(name).endswith((".", "?"))


@pytest.mark.parametrize("name", DRAWABLE)
def test_its_options_are_listed_and_a_wrong_one_is_named(name: str, audit_of: AuditOf) -> None:
    given: Mapping[str, Any] = {
        "run": history(("a", "b")) if name in FROM_HISTORIES else make(audit_of, [3, 3], ("a", "b"))
    }
    draw = figures.from_histories if name in FROM_HISTORIES else figures.from_runs
    options = [part.partition("=")[0] for part in figures.usage(name).split(", ")]
    assert options
    assert "audits" not in options
    assert "histories" not in options
    with pytest.raises(UserError, match=f"unknown setting of {name} 'colour'"):
        draw(name, given, colour="red")
    with pytest.raises(UserError, match="at least one run folder"):
        draw(name, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWABLE)
def test_any_class_name_is_just_a_name(name: str, chart_of: Callable[..., Any], tmp_path: Path) -> None:
    drawn = svg(chart_of(name, ODD_NAMES), tmp_path)
    assert "<script" not in drawn
    assert "<b>" not in drawn
    if name not in NAMES_NO_CLASS:
        texts = "\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
        assert [odd for odd in ODD_NAMES if escape(odd, quote=False) not in texts] == []
    assert "run.1" in drawn
    assert "&lt;b&gt;2&lt;/b&gt;" in drawn


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWABLE)
@pytest.mark.parametrize("support", [[4, 4], [4, 0, 4]], ids=["two classes", "one without images"])
def test_few_classes_and_one_without_images(
    name: str, support: list[int], chart_of: Callable[..., Any], tmp_path: Path
) -> None:
    names = ("one", "two", "three")[: len(support)]
    drawn = svg(chart_of(name, names, support, runs=1), tmp_path)
    assert "NaN" not in drawn
    assert "undefined" not in drawn
    if name not in NAMES_NO_CLASS | {"curve"}:  # a line without points has no end to write a name at
        assert all(f">{class_name}<" in drawn for class_name in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWABLE)
def test_a_hundred_classes(name: str, chart_of: Callable[..., Any], tmp_path: Path) -> None:
    names = tuple(f"class {c}" for c in range(100))
    groups = {f"group {g}": names[10 * g : 10 * g + 10] for g in range(10)}
    drawn = svg(chart_of(name, names, runs=1, superclasses=groups), tmp_path)
    found = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', drawn)
    assert found is not None
    assert float(found[1]) < 720
    assert float(found[2]) < 700  # it fits a page of a paper


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWABLE)
def test_files_are_as_wide_as_asked_with_their_letters_in_them(
    name: str, chart_of: Callable[..., Any], tmp_path: Path
) -> None:
    chart = chart_of(name, ("cat", "dog", "ship"), runs=1)
    pdf = figures.save(chart, tmp_path / "figure.pdf", "page").read_bytes()
    assert pdf.startswith(b"%PDF")
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert box is not None
    assert float(box[1]) == pytest.approx(487, abs=0.01)
    assert b"LiberationSans" in pdf
    assert b"/FontFile" in pdf
    with Image.open(io.BytesIO(figures.save(chart, tmp_path / "figure.png").read_bytes())) as image:
        assert image.width > 400
        assert len(image.convert("L").getcolors(1 << 24) or ()) > 10
