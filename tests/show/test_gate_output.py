"""What CI reads of the requirements: lines, JUnit XML, Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from classwise.results.audit_result import Audit
from classwise.results.baseline import Baseline
from classwise.results.criteria import Criteria, CriteriaResult
from classwise.show import gate

Make = Callable[..., Audit]


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    config = {"model": {"spec": "net.py:make", "fingerprint": "ab" * 32}, "data": {"name": "pets"}}
    return audit_of(
        {"pgd-20": [20, 50, 90]}, (100, 100, 50), ("cat", "d|g", "<i>"), config=config, timing={"wall_seconds": 12.5}
    )


@pytest.fixture
def checked(audit: Audit) -> CriteriaResult:
    return Criteria.of(["worst>=0.25", "clean.worst>=0.5", "class[d|g]>=99%"]).check(audit)


def written(path: Path, checked: CriteriaResult, audit: Audit) -> ElementTree.Element:
    gate.write_junit(path, checked, audit)
    assert path.read_bytes().lower().startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    return ElementTree.parse(path).getroot()


def properties(of: ElementTree.Element) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in of.findall("properties/property")}


def test_junit(audit: Audit, checked: CriteriaResult, tmp_path: Path) -> None:
    suite = written(tmp_path / "out" / "junit.xml", checked, audit)
    assert suite.tag == "testsuite"
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["worst>=0.25", "clean.worst>=0.5", "class[d|g]>=99%"]
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert messages == [one.sentence for one in checked.failed]


def test_junit_has_times_and_properties(audit: Audit, checked: CriteriaResult, tmp_path: Path) -> None:
    suite = written(tmp_path / "junit.xml", checked, audit)
    times = [float(case.get("time", "nan")) for case in suite.findall("testcase")]
    assert all(time > 0 for time in times)
    assert float(suite.get("time", "nan")) == pytest.approx(sum(times), abs=1e-5)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    about = properties(suite)
    assert about["model"] == "net.py:make"
    assert about["model_sha256"] == "ab" * 32
    assert about["audit_seconds"] == "12.5"
    assert (about["images"], about["eps"], about["attacks"]) == ("250", "8/255", "pgd-20")
    own = properties(suite.findall("testcase")[0])
    assert (own["attack"], own["found"], own["value"]) == ("pgd-20", "20.0%", "0.2")
    assert own["interval"].startswith("12.7%–")


def test_junit_with_a_class_of_any_script_and_what_is_no_character_in_xml(audit_of: Make, tmp_path: Path) -> None:
    audit = audit_of({"pgd-20": [1, 2]}, (5, 5), ("猫", "c\x07t"))
    suite = written(tmp_path / "junit.xml", Criteria.of(["class[猫]>=0.5", "class[c\x07t]>=0.5"]).check(audit), audit)
    assert [case.get("name") for case in suite.findall("testcase")] == ["class[猫]>=0.5", "class[c�t]>=0.5"]
    assert all("class[c�t]" in (failure.get("message") or "") for failure in list(suite.iter("failure"))[1:])


def test_markdown_renders_with_what_failed_first_and_every_class(audit: Audit, checked: CriteriaResult) -> None:
    text = gate.markdown(checked, audit)
    assert text.startswith("### ❌ Robustness by class: 2 of 3 requirements failed\n")
    tables = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", tables)
    assert cells[:4] == ["❌ failed", "<code>worst&gt;=0.25</code>", "20.0%", "12.7%–31.2%"]
    assert "<code>class[d|g]&gt;=99%</code>" in cells
    rows = [cells[12:][start : start + 5] for start in range(0, 15, 5)]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("cat", "100", "20.0%"), ("d|g", "100", "50.0%"), ("&lt;i&gt;", "50", "100.0%"),
    ]  # fmt: skip
    assert "net.py:make on 250 images of pets, linf 8/255, pgd-20" in tables


def test_markdown_of_a_baseline_says_what_it_could_not_find(audit: Audit) -> None:
    checked = Criteria(baseline=Baseline(audit=audit)).check(audit)
    text = gate.markdown(checked, audit)
    assert text.startswith("### ✅ Robustness by class: all 6 requirements hold\n")
    assert "> A class that lost fewer than 7 images" in text
    assert "20.0% → 20.0%, +0.0 points" in text


def test_many_requirements_that_hold_are_counted(audit_of: Make) -> None:
    audit = audit_of({"pgd-20": [5] * 29 + [1]}, [10] * 30)
    checked = Criteria(classes={"*": 0.5}).check(audit)
    assert [sentence for sentence, _ in gate.lines(checked)] == [
        checked.failed[0].sentence,
        "29 other requirements hold",
    ]
    assert "17 more requirements hold." in gate.markdown(checked, audit)
