"""The dossier of the demo's kind of model, opened and read: every number in it is that of summary.json."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import classwise as cw
from classwise.core.errors import UserError
from classwise.core.format import interval, percent, points
from classwise.core.storage import file_digest
from classwise.results.dossier import facts as fact_files
from classwise.results.dossier import identity
from classwise.show.dossier import Dossier, manifest, pdf
from dossier_page import Reader, wrong_numbers
from stand_ins import linear

pytestmark = pytest.mark.slow

FACTS = """
[system]
name = "Digit <reader>"
operating_domain = "Office scanners."
[data]
files = ["data.bin"]
[threat]
eps_reason = "Smudges."
[criticality]
1 = "high: amounts"
[limits]
known = ["No children's writing."]
[responsible]
name = "A. Auditor"
date = 2026-03-31
[criteria]
require = ["worst>=0.01", "clean.accuracy>=0.999"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Audits of one model: by pgd, with minimal distances, on corrupted images, and one with criteria."""
    root = tmp_path_factory.mktemp("dossier")
    model = linear(1e-2, 0.0, 0)
    more: dict[str, Any] = {"progress": False, "per_class": 12}
    attacks = ["pgd-5", "fab:iterations=5", "cw:iterations=20,binary_steps=2"]
    cw.audit(model, "digits", attacks, 0.1, out=root / "main", distances=True, **more)
    fog = "corruption:of=digits,kind=gaussian_noise,severity=3"
    cw.audit(model, fog, "clean", 0.1, out=root / "noise", **more)
    (root / "facts.toml").write_text(FACTS, encoding="utf-8")
    (root / "data.bin").write_bytes(b"the images")
    return root


@pytest.fixture(scope="module")
def made(home: Path) -> Dossier:
    return cw.dossier([home / "main", home / "noise"], home / "out", home / "facts.toml", print_pdf=False)


@pytest.fixture(scope="module")
def page(made: Dossier) -> Reader:
    return Reader((made.folder / "dossier.html").read_text(encoding="utf-8"))


def test_every_number_is_that_of_summary_json(home: Path, made: Dossier) -> None:
    assert wrong_numbers(made.folder) == []
    for run in ("main", "noise"):
        assert (made.folder / "runs" / run / "summary.json").read_bytes() == (home / run / "summary.json").read_bytes()


@pytest.mark.parametrize("where", ["dossier.html", "runs/main/summary.json"])
def test_a_number_that_is_another_is_noticed(made: Dossier, tmp_path: Path, where: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    text = (copy / where).read_text(encoding="utf-8")
    known = made.contents["results"]["main"]["attacks"]["worst_case"]["worst"]["accuracy"]
    old, new = f">{percent(known)}<", ">99.9%<"
    if where.endswith("json"):
        old, new = f'"accuracy": {known}', '"accuracy": 1.5'
    assert old in text
    (copy / where).write_text(text.replace(old, new), encoding="utf-8")
    assert wrong_numbers(copy)


def summary(home: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / run / "summary.json").read_text(encoding="utf-8"))
    return found


def test_the_class_table_shows_each_class_with_its_own_numbers(home: Path, page: Reader) -> None:
    """Read by the names in its first column and its head, not by the paths."""
    (table,) = [one for one in page.tables if one[0][:4] == ["class", "images", "clean", "attacked"]]
    read = summary(home, "main")
    clean = {row["class"]: row for row in read["attacks"]["clean"]["by_class"]}
    attacked = {row["class"]: row for row in read["worst_case"]["by_class"]}
    assert len(table) == 11
    for name, images, before, after, _, ends, _ in table[1:]:
        name = name.split()[0]
        assert (images, before, after) == (
            str(clean[name]["n"]),
            percent(clean[name]["accuracy"]),
            percent(attacked[name]["accuracy"]),
        )
        assert ends == interval(attacked[name]["low"], attacked[name]["high"])
    shown = [float(row[3].rstrip("%")) for row in table[1:]]
    assert shown == sorted(shown)


def test_the_drop_from_clean_to_attacked_to_corrupted(home: Path, page: Reader) -> None:
    (table,) = [one for one in page.tables if one[0][:4] == ["class", "clean", "attacked", "change"]]
    main, noise = summary(home, "main"), summary(home, "noise")
    for name, clean, attacked, change, corrupted, other, _ in table[1:]:
        a, b, c = (
            next(row["accuracy"] for row in entry["by_class"] if row["class"] == name)
            for entry in (main["attacks"]["clean"], main["worst_case"], noise["attacks"]["clean"])
        )
        assert [clean, attacked, corrupted] == [percent(a), percent(b), percent(c)]
        assert [change, other] == [points(b - a), points(c - a)]


def test_no_other_percentage_stands_on_the_page(made: Dossier, page: Reader) -> None:
    """What has no path is a sentence of the audit, a criterion, a bar's scale or a confidence level."""
    stored = made.contents
    sentences = [one["verdict"] for one in stored["results"].values()]
    sentences += [f["what"] + f["remedy"] for own in stored["adequacy"].values() for f in own["findings"]]
    sentences += [text for one in stored["criteria"]["results"] for text in (one["found"], one["interval"])]
    known = {token for text in sentences for token in re.findall(r"[\d.]+%", text)} | {"95%", "100%"}
    assert set(re.findall(r"[\d.]+%", page.rest)) <= known


def test_facts_are_shown_or_said_to_be_missing(page: Reader) -> None:
    for text in ("Digit <reader>", "Office scanners.", "Smudges.", "high: amounts", "A. Auditor", "2026-03-31"):
        assert text in page.rest
    assert "No children's writing." in page.rest
    assert page.rest.count("not stated") >= 8
    assert "facts are not stated in this dossier: system.version" in page.rest


def test_criteria_of_the_facts_are_checked_and_their_origin_is_said(made: Dossier, page: Reader) -> None:
    found = {one["requirement"]: one["passed"] for one in made.contents["criteria"]["results"]}
    assert found == {"worst>=0.01": True, "clean.accuracy>=0.999": False}
    assert made.passed is False
    assert "1 of 2 criteria failed" in page.rest
    assert "the statement of the responsible person" in page.rest


def test_criteria_that_the_run_recorded_were_fixed_beforehand(home: Path, tmp_path: Path) -> None:
    config = home / "main" / "config.toml"
    before = config.read_text(encoding="utf-8")
    config.write_text(before + '\n[criteria]\nrequire = ["worst>=0.01"]\nconfident = false\n', encoding="utf-8")
    try:
        again = cw.dossier([home / "main"], tmp_path / "out", print_pdf=False)
    finally:
        config.write_text(before, encoding="utf-8")
    assert again.passed is True
    assert again.contents["criteria"]["when"].startswith("Fixed beforehand")


def test_digests_have_64_digits_and_are_those_of_the_files(home: Path, made: Dossier, page: Reader) -> None:
    own = made.contents["identity"]
    digests = [own["model"]["fingerprint"], own["software"]["classwise_sha256"], own["software"]["environment_sha256"]]
    digests += [run["data_fingerprint"] for run in own["runs"].values()]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) and digest in page.rest for digest in digests)
    assert own["data_files"] == {"data.bin": file_digest(home / "data.bin")}
    for name, digest in own["runs"]["main"]["files"].items():
        assert digest == file_digest(home / "main" / name)
    assert identity.package_digest() == identity.package_digest()


def test_the_threat_is_that_of_the_attacks(made: Dossier) -> None:
    threat = made.contents["threat"]["main"]
    assert threat["knowledge"].startswith("White-box")
    assert "by at most 0.1 (L∞)" in threat["capability"]
    assert "untargeted" in threat["goal"]
    assert made.contents["threat"]["noise"] == {}


def test_optimality_of_each_attack_with_distances(made: Dossier, page: Reader) -> None:
    rows = made.contents["adequacy"]["main"]["optimality"]
    names = {row["attack"] for row in rows}
    assert len(names) == 2
    values = [row["optimality"] for row in rows if row["optimality"] is not None]
    assert len(values) > 10
    assert all(0 <= value <= 1 + 1e-9 for value in values)
    assert any(one[0][0] == "class" and set(one[0][1:]) == names for one in page.tables)


def test_without_distances_it_is_not_available(home: Path, tmp_path: Path) -> None:
    cw.audit(linear(1e-2, 0.0, 0), "digits", "pgd-2", 0.1, out=tmp_path / "run", per_class=5, progress=False)
    made = cw.dossier([tmp_path / "run"], tmp_path / "out", print_pdf=False)
    assert "Not available: it needs distances" in (made.folder / "dossier.html").read_text(encoding="utf-8")
    assert "Only one attack was run" in " ".join(made.contents["limits"])
    assert made.passed is None


def test_the_model_card_is_yaml_with_the_same_numbers(home: Path, made: Dossier) -> None:
    (model,) = yaml.safe_load((made.folder / "model-index.yaml").read_text(encoding="utf-8"))["model-index"]
    assert model["name"] == "Digit <reader>"
    assert next(result["dataset"]["name"] for result in model["results"]) == "digits"
    values = {metric["name"]: metric["value"] for metric in model["results"][0]["metrics"]}
    read = summary(home, "main")
    assert values["Accuracy (clean)"] == read["attacks"]["clean"]["accuracy"]
    worst = next(name for name in values if name.startswith("Worst class") and "worst case" in name)
    assert values[worst] == read["worst_case"]["worst"]["accuracy"]


class TestManifest:
    def test_it_lists_every_file(self, made: Dossier) -> None:
        stored = json.loads((made.folder / manifest.NAME).read_text(encoding="utf-8"))
        there = {p.relative_to(made.folder).as_posix() for p in made.folder.rglob("*") if p.is_file()}
        assert {*stored["files"], manifest.NAME} == there
        assert {"dossier.html", "dossier.json", "facts.toml", "runs/main/summary.json"} <= there
        assert made.verify() == []

    @pytest.mark.parametrize("change", ["edit", "remove", "add", "records"])
    def test_it_finds_what_changed(self, home: Path, tmp_path: Path, change: str) -> None:
        run = tmp_path / "run"
        cw.audit(linear(1e-2, 0.0, 0), "digits", "fgsm", 0.1, out=run, per_class=3, progress=False)
        made = cw.dossier([run], tmp_path / "out", print_pdf=False)
        page, part = made.folder / "dossier.html", next((run / "records").glob("*.parquet"))
        if change == "edit":
            page.write_text(page.read_text(encoding="utf-8").replace("Audit dossier", "Audit"), encoding="utf-8")
        elif change == "remove":
            page.unlink()
        elif change == "add":
            (made.folder / "more.txt").write_text("x")
        else:
            part.write_bytes(part.read_bytes()[:-1] + b"?")
        name = {"add": "more.txt", "records": part.name}.get(change, "dossier.html")
        (sentence,) = made.verify()
        assert name in sentence

    def test_a_folder_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"no manifest\.json"):
            manifest.verify(tmp_path)


class TestMistakes:
    def test_runs_of_two_models(self, home: Path, tmp_path: Path) -> None:
        cw.audit(linear(1e-1, 0.0, 0), "digits", "fgsm", 0.1, out=tmp_path / "other", per_class=3, progress=False)
        with pytest.raises(UserError, match="are audits of different models"):
            cw.dossier([home / "main", tmp_path / "other"], tmp_path / "out", print_pdf=False)

    def test_a_folder_with_other_files(self, home: Path) -> None:
        with pytest.raises(UserError, match="holds other files and is no dossier"):
            cw.dossier([home / "main"], home, print_pdf=False)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[system]\nnme = 'x'", r"unknown fact of \[system\] 'nme'; did you mean 'name'"),
            ("[sytem]\n", "unknown table of facts 'sytem'; did you mean 'system'"),
            ("system = 3", "system is a table"),
            ("[limits]\nknown = 'one'", "limits.known is a list of texts"),
            ("[data]\nfiles = ['nowhere.bin']", r"cannot take the digest of .*nowhere\.bin"),
            ("[criticality]\nhorse = 'high'", r"unknown class in \[criticality\] 'horse'"),
            ("[criteria]\nrequire = ['wrost>=1']", "unknown quantity 'wrost'"),
            ("[", "cannot read the facts"),
        ],
    )
    def test_facts(self, home: Path, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "facts.toml").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=said):
            cw.dossier([home / "main"], tmp_path / "out", tmp_path / "facts.toml", print_pdf=False)

    def test_the_template_is_a_file_of_facts_with_none_stated(self, tmp_path: Path) -> None:
        path = tmp_path / "facts.toml"
        path.write_text(fact_files.template(), encoding="utf-8")
        read = fact_files.read(path)
        assert len(read.missing()) == sum(map(len, fact_files.FACTS.values()))
        assert not read.criteria


class TestPdf:
    def test_without_a_browser_it_says_what_is_missing(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
        made = cw.dossier([home / "main"], tmp_path / "out")
        assert not (made.folder / "dossier.pdf").exists()
        assert "no Chromium or Chrome was found" in made.notes[-1]
        assert made.verify() == []

    def test_a_browser_that_fails_is_said_to(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLASSWISE_CHROMIUM", "/bin/false")
        assert "did not print" in cw.dossier([home / "main"], tmp_path / "out").notes[-1]

    @pytest.mark.skipif(pdf.find_chromium() is None, reason="needs Chromium")
    def test_with_one_it_is_printed(self, home: Path, tmp_path: Path) -> None:
        made = cw.dossier([home / "main"], tmp_path / "out")
        assert (made.folder / "dossier.pdf").read_bytes().startswith(b"%PDF-")
        assert made.verify() == []


def test_many_classes_of_any_name(audit_of: Any, tmp_path: Path) -> None:
    names = [f"class {n} <b>" for n in range(120)]
    audit = audit_of({"pgd-20": list(np.arange(120) % 7)}, [10] * 120, names)
    made = cw.dossier({"run": audit}, tmp_path / "out", print_pdf=False)
    text = (made.folder / "dossier.html").read_text(encoding="utf-8")
    assert "class 119 &lt;b&gt;" in text
    assert "<b>class" not in text
