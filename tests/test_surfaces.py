"""One verdict: terminal, page, notebook and JSON name the same classes with the same numbers."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from classwise.cli.main import app
from classwise.core import format as text
from classwise.results import findings
from classwise.results.audit_result import Audit
from classwise.results.verdict import Verdict
from classwise.show import terminal
from classwise.show.page import build as build_page
from classwise.show.page import charts

Make = Callable[..., Audit]

#: correct under the attacks, images of each class, and the classes that tie for the worst.
Case = tuple[dict[str, Sequence[int]], Sequence[int], set[int]]


def signs() -> Case:
    """30 of 43 classes at 0%, of 12 to 70 images each; two of the others so low that they may be the worst as well."""
    images = [12 + 2 * (number % 30) for number in range(43)]
    right = [0] * 30 + [1, 1] + [images[number] // 2 for number in range(32, 43)]
    return {"pgd-20": right}, images, set(range(30))


CASES: dict[str, Case] = {
    "thirty of 43 at nothing": signs(),
    "ties above nothing": ({"pgd-20": [4, 8, 80, 2]}, (20, 40, 100, 10), {0, 1, 3}),
    "one worst class": ({"pgd-20": [23, 500, 700]}, (939, 1000, 1000), {0}),
    "too close": ({"pgd-20": [18, 20, 80]}, (100, 100, 100), {0}),
    "all equal": ({"pgd-20": [5, 10, 15]}, (10, 20, 30), {0, 1, 2}),
    "one class": ({"pgd-20": [5]}, (20,), {0}),
    "classes without images": ({"pgd-20": [9, 0, 3, 0]}, (10, 0, 10, 0), {2}),
    "no attack": ({"clean": [5, 9, 9]}, (10, 10, 10), {0}),
    "several attacks": ({"pgd-20": [50, 20, 80], "fgsm": [60, 30, 70]}, (100, 100, 100), {1}),
}


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest, audit_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Audit, set[str]]:
    """An audit as its run folder gives it back, and the names of the classes that tie for the worst."""
    right, images, worst = CASES[request.param]
    made = audit_of(right, images)
    made.records.write(tmp_path / "run" / "records" / "00-all-00000.parquet")
    made.save(tmp_path / "run")
    monkeypatch.setattr(charts, "of_audits", lambda audits: [])  # drawn in other tests
    return Audit.load(tmp_path / "run"), {made.records.class_names[number] for number in worst}


def on_terminal(audit: Audit) -> str:
    console = Console(file=io.StringIO(), width=2000)
    terminal.show(audit, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def on_page(audit: Audit) -> tuple[str, dict[str, Any]]:
    """The page's text, and what its script reads of the run."""
    assert audit.folder is not None
    source = build_page([audit.folder], audit.folder / "page.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    return html.unescape(source.split("<script")[0]), json.loads(data)["runs"][0]


def numbers(found: Verdict) -> set[str]:
    return {text.percent(found.accuracy), text.interval(found.low, found.high)}


@pytest.mark.slow
def test_every_surface_names_the_same_classes_with_the_same_numbers(case: tuple[Audit, set[str]]) -> None:
    audit, tied = case
    found = audit.verdict()
    assert set(found.worst) == tied
    assert set(found.possible) >= tied
    assert all(number in found.sentence for number in numbers(found))

    shown = on_terminal(audit)
    assert found.sentence in shown
    overview = next(line for line in shown.splitlines() if line.startswith(f"{audit.headline} ") and "%" in line)
    assert found.label in overview
    assert numbers(found) <= set(overview.split())

    said, run = on_page(audit)
    assert found.sentence in said
    assert f"<dt>worst class: {found.label}</dt><dd><b>{text.percent(found.accuracy)}</b>" in said
    view = run["views"][run["headline"]]
    assert {run["classes"][place] for place in view["worst"]} == tied
    assert {view["rows"]["accuracy"][place] for place in view["worst"]} == {found.accuracy}
    assert view["verdict"] == found.sentence

    notebook = html.unescape(audit._repr_html_())
    assert notebook.startswith(f"<div><p><strong>{found.sentence}</strong></p>")
    assert f"{text.percent(found.accuracy)} [{text.interval(found.low, found.high)}]" in str(audit)

    assert audit.folder is not None
    stored = json.loads((audit.folder / "summary.json").read_text(encoding="utf-8"))
    printed = json.loads(CliRunner().invoke(app, ["show", str(audit.folder), "--json"]).stdout)
    for summary in (stored, printed):
        assert summary["verdict"] == found.to_dict()
        entry = summary["worst_case"] if audit.headline == "worst_case" else summary["attacks"][audit.headline]
        assert set(entry["worst"]["classes"]) == tied == set(entry["verdict"]["worst"])
        assert entry["average"] == found.average
        assert [entry["worst"][key] for key in ("accuracy", "low", "high")] == [found.accuracy, found.low, found.high]


def test_nothing_is_recommended_to_separate_classes_that_tie(audit_of: Make) -> None:
    """Where 30 classes tie nothing is said of separating two of them."""
    right, images, _ = CASES["thirty of 43 at nothing"]
    audit = audit_of(right, images)
    assert (len(audit.verdict().worst), len(audit.verdict().possible)) == (30, 32)
    (undecided,) = [finding for finding in findings.of_audit(audit) if finding.code == "worst_undecided"]
    assert undecided.what.startswith("Under pgd-20, 30 of 43 classes tie for the worst with 0.0% (")
    assert undecided.remedy.startswith("Report them together")


def test_show_of_one_attack_says_its_verdict(audit_of: Make, tmp_path: Path) -> None:
    audit = audit_of({"pgd-20": [50, 20], "fgsm": [60, 30]}, (100, 100))
    audit.records.write(tmp_path / "records" / "00-all-00000.parquet")
    audit.save(tmp_path)
    shown = CliRunner().invoke(app, ["show", str(tmp_path), "--attack", "fgsm"]).stdout
    assert " ".join(audit.verdict("fgsm").sentence.split()) in " ".join(shown.split())
