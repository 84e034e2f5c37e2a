"""The page of a study, from its folder alone: what it opens with, claims, tables, figures; and of earlier versions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import study_runs
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.results import stored_study
from classwise.results.stored_study import StoredStudy
from classwise.show.page import build
from classwise.show.page import study as study_page
from page_runs import write_run

pytestmark = pytest.mark.slow

OPEN = "not decided here"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study_runs.write_study(tmp_path_factory.mktemp("studies") / "worst")


@pytest.fixture(scope="module")
def source(folder: Path) -> str:
    return build([folder], folder / "study.html", note="For the meeting.").read_text(encoding="utf-8")


def section(source: str, name: str) -> str:
    """The text of a section, without tags."""
    found = re.search(rf'<section (?:id|class)="{name}".*?</section>', source, re.DOTALL)
    assert found is not None, name
    return " ".join(re.sub(r"<[^>]*>", " ", found[0]).split())


def test_the_first_screen_says_what_was_studied_and_counts_the_verdicts(source: str) -> None:
    text = section(source, "hero")
    assert "Methods that raise the worst class, over seeds For the meeting." in text
    for part in (
        "models protocol/cifar10/trades data cifar10 threat L∞ ≤ 8/255 attacks pgd-20, margin_pgd-30",
        "options control trades; seeds 0, 1, 2; per_class 40; seed 0 date",
        "versions classwise ",
        "3 of 4 claims decided: 2 held, 1 did not hold.",
        "claims not decided",
        "of computing 1.7 h 7 jobs",
    ):
        assert part in text


def test_every_claim_has_its_verdict_evidence_test_sample_and_source(folder: Path, source: str) -> None:
    text = section(source, "claims")
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    assert len(claims) == 4
    for claim in claims:
        assert claim["sample"] == "40 images of each class"
        said = f"{claim['verdict']} {claim['text']} evidence {claim['numbers']} test {claim['test']} "
        needs = f"would decide it {claim['needs']} " if claim["needs"] else ""
        assert f"{said}sample {claim['sample']} {needs}source {claim['source']}" in text.replace("&#39;", "'")
    assert any(claim["needs"] for claim in claims)


def test_tables_are_shown_rounded_and_saved_in_full(folder: Path, source: str) -> None:
    text = section(source, "tables")
    assert "Costs CSV 4 rows. group models minutes each trades-tuned 3 31.0" in text
    assert "wat-tuned worst 3 0.408 " in text
    assert " yes " in text  # paired
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert data is not None
    stored = json.loads(data[1])["tables"]
    assert stored["table-trades-tuned_audit"] == (folder / "tables" / "trades-tuned_audit.csv").read_text(
        encoding="utf-8"
    )


def test_figures_are_drawn_from_what_the_study_left(source: str) -> None:
    figures = source.partition('id="figures"')[2].partition("</section>")[0]
    assert figures.count("<svg") == figures.count('data-save-chart="forest_trades-tuned_audit"') == 1
    assert "currentColor" in figures  # of the page, light or dark
    assert "wat-tuned" in figures
    assert "run: worst; class: wat-tuned; value: " in figures  # under the pointer


def test_costs_notes_settings_and_glossary(source: str) -> None:
    assert "trainings 3 1.6 h audits 4 6 min" in section(source, "costs")
    assert "Differences are over 3 seeds &amp; the test images &lt;together&gt;." in section(source, "notes")
    assert "control trades" in section(source, "settings")
    assert "classwise report" in section(source, "settings")
    assert "not enough images" in section(source, "glossary")
    assert "mean ± standard deviation, over seeds" in section(source, "glossary")


def test_it_needs_no_torch(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from classwise.show.page import build; "
        f"build([Path({str(folder)!r})], Path({str(tmp_path / 'page.html')!r})); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_result_in_python_has_the_same_page(folder: Path, source: str, tmp_path: Path) -> None:
    made = study_runs.result(tmp_path / "audits").write_page(tmp_path / "page.html", "Mine", {"seed": 7})
    text = made.read_text(encoding="utf-8")
    assert "Mine options seed 7 3 of 4 claims decided: 2 held, 1 did not hold." in section(text, "hero")
    for name in ("claims", "tables", "figures", "notes"):
        assert section(text, name) == section(source, name)


def test_the_command_writes_it_and_refuses_what_a_study_has_not(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(out), "--title", "Mine"])
    assert done.exit_code == 0, done.output
    assert 'id="title">Mine<' in out.read_text(encoding="utf-8")
    with pytest.raises(UserError, match="no requirements: these are of audits"):
        build([folder], out, requirements=["worst>=0.1"])
    write_run(tmp_path / "run", images=False)
    with pytest.raises(UserError, match="a page of its own"):
        build([folder, tmp_path / "run"], out)


def test_of_an_earlier_version_what_there_is(folder: Path, tmp_path: Path) -> None:
    """Without study.json and charts: title, options, order and notes of study.md, and the drawings as pictures."""
    earlier = tmp_path / "earlier"
    for path in (
        *folder.glob("tables/*"),
        *folder.glob("figures/*.svg"),
        *folder.glob("*.md"),
        *folder.glob("claims*"),
    ):
        target = earlier / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (earlier / "jobs" / "a").mkdir(parents=True)
    (earlier / "jobs" / "a" / "job.json").write_text('{"job": {"kind": "train"}, "seconds": 60.0}', encoding="utf-8")
    now, then = stored_study.read(folder), stored_study.read(earlier)
    assert (then.title, then.sentence, list(then.notes)) == (now.title, now.sentence, list(now.notes))
    assert list(then.tables) == list(now.tables)
    assert then.settings["seeds"] == "0, 1, 2"
    assert then.jobs == [{"name": "a", "kind": "train", "seconds": 60.0}]
    text = build([earlier], tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'src="data:image/svg+xml;base64,' in text
    assert "<svg" not in text.partition('id="figures"')[2].partition("</section>")[0]


def test_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "study.md").write_text("# A study\n", encoding="utf-8")
    (tmp_path / "study.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"study\.json: .* finished jobs are kept"):
        stored_study.read(tmp_path)
    for content in ("[1]", '{"title": "x"}', '{"title": "x", "settings": {}, "tables": 3}'):
        (tmp_path / "study.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=r"damaged \(.*finished jobs are kept"):
            stored_study.read(tmp_path)
    with pytest.raises(UserError, match="no folder of a finished study"):
        stored_study.read(tmp_path / "nowhere")
    chart = StoredStudy(title="x", charts={"broken": {"mark": "no such mark", "data": {"values": []}}})
    assert "This chart cannot be drawn" in study_page.render(chart, "x", "", "")


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([*5 * ["held"], *2 * ["did not hold"], *2 * [OPEN]], "7 of 9 claims decided: 5 held, 2 did not hold."),
        ([OPEN, "not enough images"], f"None of the 2 claims is decided: 1 {OPEN}, 1 not enough images."),
        (["not enough images"], "The claim is not decided: 1 not enough images."),
        (["held"], "1 of 1 claim decided: 1 held."),
        ([], "No claim is tested: 1 table and 0 figures."),
    ],
)  # fmt: skip
def test_the_verdicts_in_one_line(verdicts: list[str], sentence: str) -> None:
    claims = [{"verdict": verdict} for verdict in verdicts]
    assert StoredStudy(title="x", claims=claims, tables={"a": pd.DataFrame()}).sentence == sentence


def test_of_a_long_table_the_first_rows_and_all_in_the_file() -> None:
    frame = pd.DataFrame({"class": ["null", None, *map(str, range(398))], "value": [0.5] * 400})
    found = study_page.render(StoredStudy(title="x", tables={"long": frame}), "x", "", "")
    assert "The first 300 of 400 rows; the CSV file has all." in found
    assert found.count("<tr>") == 301
