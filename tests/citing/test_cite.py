"""Everything that is registered says which papers it is from, and `cite` names those of a run."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import classwise as cw
from classwise import attacks, methods, published
from classwise.attacks import foreign
from classwise.citing import bibliography
from classwise.cli.main import app
from classwise.core.registry import KINDS
from classwise.models import external
from classwise.repairing.knobs import KNOBS
from classwise.stats import confidence_sequences
from classwise.training import averaging, awp
from for_each import for_each

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = bibliography.entries()
REGISTERED = [
    (kind, name)
    for kind in ("attacks", "methods", "metrics", "datasets", "models")
    for name in importlib.import_module(KINDS[kind]).names()
]


def papers(kind: str, name: str) -> Any:
    return importlib.import_module(KINDS[kind]).papers(name)


def keys(text: str) -> list[str]:
    return re.findall(r"^@\w+\{([^,]+),", text, flags=re.MULTILINE)


@for_each(("kind", "name"), REGISTERED)
def test_everything_registered_has_papers_or_is_ours(kind: str, name: str) -> None:
    stated = papers(kind, name)
    assert stated is not None, "say PAPERS = (…) in its file, PAPERS = () where there is no paper"
    assert set(stated) <= set(ENTRIES)


@for_each(
    ("kind", "name"),
    [(kind, name) for kind, name in REGISTERED if kind in ("attacks", "methods") and papers(kind, name)],
)
def test_the_docstring_names_one_of_the_papers(kind: str, name: str) -> None:
    about = inspect.getdoc(importlib.import_module(f"classwise.{kind}.{name}")) or ""
    authors = [re.search(r"author = \{+(.*?)[,}]", ENTRIES[key]) for key in papers(kind, name)]
    assert any(found is not None and found[1] in about for found in authors), about[:120]


def test_only_what_has_no_paper_is_ours() -> None:
    ours = {name for name in attacks.names() if not attacks.papers(name)}
    assert ours == {"clean", "noise"}
    assert {name for name in methods.names() if not methods.papers(name)} == {"standard"}


def test_every_entry_is_complete_and_used() -> None:
    text = (Path(bibliography.__file__).parent / "references.bib").read_text(encoding="utf-8")
    assert len(keys(text)) == len(set(keys(text))) == len(ENTRIES)
    for key, entry in ENTRIES.items():
        fields = set(re.findall(r"^  (\w+) = ", entry, flags=re.MULTILINE))
        assert fields >= {"title", "author"} | ({"year"} if key != bibliography.OWN else {"version"}), key
        assert entry.count("{") == entry.count("}"), key
        assert key == bibliography.OWN or re.search(r"\d{4}", key)[0] in entry, key  # type: ignore[index]
    stated = {key for kind, name in REGISTERED for key in papers(kind, name)} | {bibliography.OWN, *awp.PAPERS}
    stated |= {
        key for table in (foreign.PAPERS, external.PAPERS, averaging.PAPERS) for own in table.values() for key in own
    }
    stated |= {key for knob in KNOBS.values() for key in importlib.import_module(type(knob).__module__).PAPERS}
    stated |= {item.paper for item in published.items()} | {*confidence_sequences.PAPERS, *attacks.papers("autoattack")}
    assert stated == set(ENTRIES)


def test_the_version_is_that_of_the_package() -> None:
    described = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert described["version"] == cw.__version__
    assert f"version = {{{cw.__version__}}}" in cw.cite()
    assert {"cff-version", "message", "title", "authors"} <= set(described)


def test_names_and_specs_are_cited_once_each() -> None:
    text = cw.cite("pgd-20", "madry", "trades", "wideresnet-34-10", "corruption:of=cifar10", "foolbox:L2PGD,steps=3")
    assert keys(text) == ["classwise", "madry2018", "zhang2019", "zagoruyko2016", "hendrycks2019", "rauber2020foolbox"]
    assert "% attack pgd, method madry" in text


def test_a_near_miss_is_named() -> None:
    with pytest.raises(cw.UserError, match="did you mean 'pgd'"):
        cw.cite("pdg")
    with pytest.raises(cw.UserError, match="run folders and names"):
        cw.cite(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_audit_names_its_attacks_data_and_trained_model(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "PAPERS = ('@misc{doe2026, year = {2026}}',)\ndef own(model, x, y):\n    return x\n", encoding="utf-8"
    )
    cw.audit("zoo:digits/resnet16/wat-0", "digits", ["fgsm", f"{mine}:own"], 0.1, limit=20, out=tmp_path / "run")
    found = keys(cw.cite(tmp_path / "run"))
    assert set(found) == {
        "classwise", "goodfellow2015", "doe2026", "alpaydin1998", "li2023", "he2016resnet", "wilson1927", "tian2021",
    }  # fmt: skip


def test_a_training_names_its_method_and_what_it_adds(tmp_path: Path) -> None:
    config = """
        [method]
        name = "fair_ard"
        base = "rslad"
        [model]
        spec = "preact_resnet-18"
        [data]
        name = "corruption:of=cifar10,kind=fog"
        [train]
        awp = "awp:gamma=0.005"
        averaging = "swa:start=3"
        [validate]
        attack = ["pgd-10"]
    """
    (tmp_path / "config.toml").write_text(inspect.cleandoc(config), encoding="utf-8")
    assert keys(cw.cite(tmp_path)) == [
        "classwise", "madry2018", "yue2023", "zi2021", "wu2020awp", "izmailov2018", "hendrycks2019", "krizhevsky2009",
        "he2016preact",
    ]  # fmt: skip


def test_a_repair_names_its_knob_and_a_study_its_claims(tmp_path: Path) -> None:
    repair = '[repair]\nknob = "norms"\nattacks = ["apgd_t-10"]\njudge_attacks = ["square-50"]\ndata = "mnist"\n'
    job = tmp_path / "jobs" / "repaired"
    job.mkdir(parents=True)
    (job / "config.toml").write_text(f'{repair}[model]\nspec = "smallcnn"\n', encoding="utf-8")
    expected = ["classwise", "croce2020autoattack", "andriushchenko2020", "lecun1998", "zhang2019", "kang2020"]
    assert keys(cw.cite(job)) == expected
    (tmp_path / "study.md").write_text("# A study\n", encoding="utf-8")
    (tmp_path / "claims.json").write_text(json.dumps([{"source": "li2023:figure2"}]), encoding="utf-8")
    assert keys(cw.cite(tmp_path)) == [*expected, "li2023"]


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["cite", "fgsm", "--out", str(tmp_path / "refs.bib")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "refs.bib").read_text(encoding="utf-8") == cw.cite("fgsm")
