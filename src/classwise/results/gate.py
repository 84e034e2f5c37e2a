"""Requirements on an audit, for continuous integration: ``worst>=0.25``, ``pgd-20.gap<=0.4``, ``class[cat]>=0.2``.

Quantities: accuracy (over all examples), average (over classes), worst, gap (best − worst), tail20, cv, and
class[NAME]; of the headline attack unless another is named before a dot (`clean.worst>=0.6`). A confident
requirement is asked of the interval's unfavourable bound, where there is one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from classwise import metrics
from classwise.core.csv_files import visible
from classwise.core.errors import UserError, unknown
from classwise.core.format import fixed, percent
from classwise.core.records import WORST_CASE
from classwise.core.spec import number
from classwise.core.storage import write_text
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*(?P<name>.+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<value>[\d./e%+-]+)\s*")
_MOST_DIGITS = 9
QUANTITIES = ("accuracy", "average", "worst", "gap", "tail20", "cv", "class[NAME]")
_QUANTITY = re.compile(
    r"(?:(?P<attack>(?!class\[).+?)\.)?(?P<quantity>accuracy|average|worst|gap|mcd|tail20|cv|class\[.+\])"
)


@dataclass(frozen=True)
class RequirementResult:
    """A requirement and how it came out."""

    requirement: str
    value: float
    passed: bool
    sentence: str


def check(audit: Audit, requirements: Sequence[str], confident: bool = False) -> list[RequirementResult]:
    """Each requirement's outcome, in order."""
    return [_check_one(audit, text, confident) for text in requirements]


def parse(text: str) -> tuple[str, str, float]:
    """``"worst >= 25%"`` as ("worst", ">=", 0.25). An unknown quantity is an error here, before the audit is run."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UserError(f"cannot read the requirement {text!r}; write it as worst>=0.25 or gap<=0.4.")
    if _QUANTITY.fullmatch(match["name"]) is None:
        raise unknown("quantity", match["name"].rpartition(".")[2], QUANTITIES)
    raw = match["value"]
    return match["name"], match["operator"], number(raw[:-1]) / 100 if raw.endswith("%") else number(raw)


def _check_one(audit: Audit, text: str, confident: bool) -> RequirementResult:
    name, sign, bound = parse(text)
    attack, quantity = _attack_of(audit, name)
    value, low, high = _quantity(audit, attack, quantity)
    asked = value if not confident else low if sign.startswith(">") else high
    passed = bool(_OPERATORS[sign](asked, bound))
    side = "lower" if sign.startswith(">") else "upper"
    which = f", {side} bound {_shown(quantity, asked, bound)}" if asked != value else ""
    found = f"{quantity} under {attack} is {_shown(quantity, value, bound)}{which}"
    return RequirementResult(text, asked, passed, f"{text}: {'holds' if passed else 'FAILED'} ({found})")


def _shown(quantity: str, value: float, bound: float) -> str:
    """The number as it is written everywhere, or with as many more decimals as tell it from the bound."""
    write = fixed if quantity == "cv" else percent
    decimals = (digits for digits in range(1, _MOST_DIGITS) if write(value, digits) != write(bound, digits))
    return write(value, 1 if value == bound else next(decimals, _MOST_DIGITS))


def _attack_of(audit: Audit, name: str) -> tuple[str, str]:
    """The attack named before the quantity, if one is, and the quantity. Either name may hold dots of its own."""
    match = _QUANTITY.fullmatch(name)
    assert match is not None  # `parse` has seen it
    known = (*audit.names, WORST_CASE)
    if match["attack"] not in (None, *known):
        raise unknown("attack in this audit", match["attack"], known)
    return match["attack"] or audit.headline, match["quantity"]


def _quantity(audit: Audit, attack: str, quantity: str) -> tuple[float, float, float]:
    """A quantity with its interval; without one, the value three times."""
    rows = audit.rows(attack)
    summary: dict[str, Any] = metrics.summary(rows, audit.confidence)
    if match := re.fullmatch(r"class\[(.+)\]", quantity):
        by_name = {row["class"]: row for row in summary["by_class"]}
        if match[1] not in by_name:
            raise unknown("class", match[1], by_name)
        row = by_name[match[1]]
        if row["n"] == 0:
            raise UserError(f"class {match[1]!r} has no example in this audit, so nothing can be required of it.")
        return row["accuracy"], row["low"], row["high"]
    if quantity == "worst":
        worst = summary["worst"]
        return worst["accuracy"], worst["low"], worst["high"]
    if quantity == "accuracy":
        return summary["accuracy"], summary["accuracy_low"], summary["accuracy_high"]
    if quantity in ("gap", "mcd"):
        bounds = accuracy.compute(rows, confidence=audit.confidence, simultaneous=True)
        best, lowest = bounds.best, bounds.worst
        gap = float(bounds.values[best] - bounds.values[lowest])
        # The true gap is at most the largest upper bound minus the smallest lower one, all bounds holding together.
        least = max(0.0, float(bounds.low[best] - bounds.high[lowest]))
        return gap, least, float(max(bounds.high[bounds.support > 0]) - min(bounds.low[bounds.support > 0]))
    return summary[quantity], summary[quantity], summary[quantity]


def write_junit(path: Path, outcomes: Sequence[RequirementResult]) -> None:
    """The outcomes as a JUnit XML file, one test case each."""
    failures = sum(not outcome.passed for outcome in outcomes)
    suite = ElementTree.Element("testsuite", name="classwise", tests=str(len(outcomes)), failures=str(failures))
    for outcome in outcomes:
        name, sentence = visible(outcome.requirement), visible(outcome.sentence)
        case = ElementTree.SubElement(suite, "testcase", classname="classwise.require", name=name)
        if not outcome.passed:
            ElementTree.SubElement(case, "failure", message=sentence).text = sentence
    ElementTree.indent(suite)
    # As bytes, because the declaration of the text form names the locale's encoding, and the file is UTF-8.
    write_text(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True).decode() + "\n")
