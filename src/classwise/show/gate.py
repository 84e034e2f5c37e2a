"""Whether requirements hold, as CI reads it: lines of a terminal, JUnit XML, and Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from classwise.core.csv_files import visible
from classwise.core.format import level, percent, radius
from classwise.core.records import CLEAN
from classwise.core.run_config import as_table
from classwise.core.storage import atomic_write_text
from classwise.core.version import __version__
from classwise.results.audit_result import Audit
from classwise.results.criteria import CriteriaResult
from classwise.results.gate import RequirementResult

_MOST = 12  # requirements that hold and are shown one by one; more are counted


def lines(checked: CriteriaResult) -> Iterator[tuple[str, bool]]:
    """What the terminal says, and whether it is good news: all that failed; what holds, unless it is very much."""
    holding = len(checked.results) - len(checked.failed)
    for one in checked.results:
        if not one.passed or holding <= _MOST:
            yield one.sentence, one.passed
    if holding > _MOST:
        yield f"{holding:,} {'other ' if checked.failed else ''}requirements hold", True


def write_junit(path: Path, checked: CriteriaResult, audit: Audit) -> None:
    """A JUnit XML file with one test case for each requirement. Times are of the checks; what the audit took, and what
    was audited, are properties of the suite."""
    suite = ElementTree.Element(
        "testsuite",
        name="classwise",
        tests=str(len(checked.results)),
        failures=str(len(checked.failed)),
        errors="0",
        skipped="0",
        time=_seconds(sum(result.seconds for result in checked.results)),
        timestamp=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
    )
    _properties(suite, scope(audit))
    for result in checked.results:
        _case(suite, result)
    ElementTree.indent(suite)
    # As bytes, because the declaration of the text form names the locale's encoding, and the file is UTF-8.
    atomic_write_text(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True).decode() + "\n")


def _case(suite: ElementTree.Element, result: RequirementResult) -> None:
    name, sentence = visible(result.requirement), visible(result.sentence)
    case = ElementTree.SubElement(
        suite, "testcase", classname="classwise.require", name=name, time=_seconds(result.seconds)
    )
    own = {"attack": result.attack, "found": result.found, "interval": result.interval, "value": result.value}
    _properties(case, own)
    if not result.passed:
        ElementTree.SubElement(case, "failure", message=sentence, type="requirement").text = sentence


def _properties(of: ElementTree.Element, values: Mapping[str, Any]) -> None:
    holder = ElementTree.SubElement(of, "properties")
    for name, value in values.items():
        ElementTree.SubElement(holder, "property", name=name, value=visible(str(value)))


def _seconds(value: float) -> str:
    return f"{value:.6f}"


def scope(audit: Audit) -> dict[str, Any]:
    """What was audited, and how: what makes two results comparable."""
    meta, model, data = audit.records.meta, as_table(audit.config.get("model")), as_table(audit.config.get("data"))
    found = {
        "model": model.get("spec"),
        "model_sha256": model.get("fingerprint"),
        "data": data.get("name"),
        "data_sha256": data.get("fingerprint"),
        "images": len(audit.rows()),
        "classes": len(meta.class_names),
        "norm": meta.norm,
        "eps": radius(meta.eps),
        "attacks": ", ".join(audit.attacks),
        "headline": audit.headline,
        "confidence": audit.confidence,
        "seed": meta.seed,
        "audit_seconds": audit.timing.get("wall_seconds"),
        **{f"version_{name}": version for name, version in meta.versions.items()},
        "checked_by": f"classwise {__version__}",
    }
    return {name: value for name, value in found.items() if value is not None}


def markdown(checked: CriteriaResult, audit: Audit) -> str:
    """A summary for a pull request: the verdict, what failed first, the classes, and what was audited."""
    about, verdict = scope(audit), audit.verdict()
    parts = [
        f"### {'✅' if checked.passed else '❌'} Robustness by class: {checked.sentence.rstrip('.').lower()}",
        _text(verdict.sentence),
        _requirements(checked, audit),
        *(f"> {_text(note)}" for note in checked.notes),
        f"<details><summary>Accuracy of every class</summary>\n\n{_classes(audit)}\n\n</details>",
        _text(
            f"{about.get('model', 'model')} on {about['images']:,} images of {about.get('data', 'the data')}, "
            f"{about['norm']} {about['eps']}, {about['attacks'] or 'no attack'}, seed {about['seed']}; "
            f"classwise {__version__}."
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _requirements(checked: CriteriaResult, audit: Audit) -> str:
    failed, holding = checked.failed, [result for result in checked.results if result.passed]
    if not checked.results:
        return ""
    head = f"| | requirement | found | {level(audit.confidence)} CI |\n|---|---|---|---|"
    rows = [_row("❌ failed", result) for result in failed] + [_row("✅ holds", result) for result in holding[:_MOST]]
    more = f"\n\n{len(holding) - _MOST:,} more requirements hold." if len(holding) > _MOST else ""
    return "\n".join((head, *rows)) + more


def _row(state: str, result: RequirementResult) -> str:
    return f"| {state} | {_code(result.requirement)} | {_text(result.found)} | {_text(result.interval)} |"


def _classes(audit: Audit) -> str:
    """Clean and robust accuracy, the weakest first."""
    table = audit.by_class().sort_values("accuracy", na_position="last", kind="stable")
    clean: dict[Any, float] = {}
    if CLEAN in audit.names:
        clean = audit.by_class(CLEAN).set_index("class")["accuracy"].to_dict()
    head = f"| class | images | clean | {_text(audit.headline)} | {level(audit.confidence)} CI |\n|---|--:|--:|--:|--:|"
    rows = [
        f"| {_text(row['class'])} | {row['n']:,} | {percent(clean.get(row['class']))} | {percent(row['accuracy'])} | "
        f"{percent(row['low'])}–{percent(row['high'])} |"
        for row in table.to_dict("records")
    ]
    return "\n".join((head, *rows))


def _text(text: Any) -> str:
    """A text inside Markdown, of which nothing is markup: class names may hold anything."""
    shown = str(visible(str(text))).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|#~@" else letter for letter in shown)


def _code(text: str) -> str:
    return f"`` {str(visible(text)).replace('`', chr(39)).replace('|', chr(92) + '|')} ``"
