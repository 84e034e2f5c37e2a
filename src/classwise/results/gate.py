"""Requirements on an audit, for continuous integration: ``worst>=0.25``, ``pgd-20.gap<=0.4``, ``class[cat]>=0.2``.

Quantities: the metrics that say they are shown in the "gate", accuracy (over all examples), average (over classes),
worst, gap (best − worst), tail20 and cv; class[NAME]; a metric of your own, file.py:NAME; and any of the metrics over
the classes of a group, group[animals].worst. Of the headline attack unless another is named before a dot
(`clean.worst>=0.6`). A confident requirement is asked of the interval's unfavourable bound, where there is one.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from classwise import metrics
from classwise.core.errors import UserError, check_known, lookup, unknown
from classwise.core.format import UNKNOWN, fixed, percent
from classwise.core.records import WORST_CASE, Records
from classwise.core.spec import number
from classwise.core.user_files import IN_FILE
from classwise.metrics import accuracy
from classwise.metrics.metric import Metric
from classwise.results.audit_result import Audit

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*(?P<name>.+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<value>[\d./e%+-]+)\s*")
_MOST_DIGITS = 9
_CLASS = re.compile(r"class\[(.+)\]")
_GROUP = re.compile(r"group\[(?P<group>.+?)\]\.(?P<quantity>.+)")

#: Groups of classes by name.
Groups = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class RequirementResult:
    """A requirement, the value it was checked against, and whether it holds.

    found and interval: what was measured, as it is written. attack: the rows it was asked of. seconds: of checking it.
    """

    requirement: str
    value: float
    passed: bool
    sentence: str
    attack: str
    found: str
    interval: str = UNKNOWN
    seconds: float = 0.0


def check(
    audit: Audit, requirements: Sequence[str], confident: bool = False, groups: Groups | None = None
) -> list[RequirementResult]:
    """The result of each requirement, in order. groups: besides the superclasses of the data."""
    known = {**(audit.records.meta.superclasses or {}), **(groups or {})}
    return [_check_one(audit, text, confident, known) for text in requirements]


def parse(text: str) -> tuple[str, str, float]:
    """``"worst >= 25%"`` as ("worst", ">=", 0.25). An unknown quantity is an error here, before the audit is run."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UserError(f"cannot read the requirement {text!r}; write it as worst>=0.25 or gap<=0.4.")
    divide(match["name"])
    raw = match["value"]
    return match["name"], match["operator"], number(raw[:-1]) / 100 if raw.endswith("%") else number(raw)


def own_metrics(requirements: Sequence[str]) -> list[str]:
    """The metrics of Python files that requirements name, to be shown besides the usual ones."""
    named = (_of_group(divide(parse(text)[0])[1])[1] for text in requirements)
    return list(dict.fromkeys(quantity for quantity in named if IN_FILE.fullmatch(quantity)))


def _check_one(audit: Audit, text: str, confident: bool, groups: Groups) -> RequirementResult:
    begin = time.perf_counter()
    name, sign, bound = parse(text)
    attack, quantity = divide(name)
    check_known("attack in this audit", (*audit.names, WORST_CASE), attack)
    attack = attack or audit.headline
    value, low, high = _quantity(audit, attack, quantity, groups)
    asked = value if not confident else low if sign.startswith(">") else high
    passed = bool(_OPERATORS[sign](asked, bound))
    side = "lower" if sign.startswith(">") else "upper"
    which = f", {side} bound {_shown(quantity, asked, bound)}" if asked != value else ""
    shown = _shown(quantity, value, bound)
    found = f"{quantity} under {attack} is {shown}{which}"
    ends = (_shown(quantity, end, bound) for end in (low, high))
    return RequirementResult(
        requirement=text,
        value=asked,
        passed=passed,
        sentence=f"{text}: {'holds' if passed else 'FAILED'} ({found})",
        attack=attack,
        found=shown,
        interval=UNKNOWN if low == high == value else "–".join(ends),
        seconds=time.perf_counter() - begin,
    )


def _shown(quantity: str, value: float, bound: float) -> str:
    """The number as it is written everywhere, or with as many more decimals as it takes to differ from the bound."""
    _, quantity = _of_group(quantity)
    shown = None if _CLASS.fullmatch(quantity) else _metric(quantity).shown
    write, least = (fixed, shown.digits) if shown is not None and shown.unit == "number" else (percent, 1)
    decimals = (digits for digits in range(least, _MOST_DIGITS) if write(value, digits) != write(bound, digits))
    return write(value, least if value == bound else next(decimals, _MOST_DIGITS))


def _known() -> dict[str, Metric]:
    """What requirements may be about, by every name it has."""
    return {name: metric for metric in metrics.shown("gate") for name in metric.names}


def _metric(quantity: str) -> Metric:
    return metrics.find(quantity) if IN_FILE.fullmatch(quantity) else _known()[quantity]


def divide(name: str) -> tuple[str | None, str]:
    """The attack named before the quantity, if one is, and the quantity. Either name may hold dots of its own."""
    known = _known()
    for start in (0, *(dot.end() for dot in re.finditer(r"\.", name))):
        attack, quantity = name[: max(start - 1, 0)] or None, name[start:]
        _, plain = _of_group(quantity)
        in_file = IN_FILE.fullmatch(plain)
        if plain in known or _CLASS.fullmatch(plain) or (in_file and Path(in_file["path"]).is_file()):
            return attack, quantity
    shown = (metric.names[0] for metric in known.values())
    raise unknown("quantity", name.rpartition(".")[2], {*shown, "class[NAME]", "group[NAME].worst"})


def _of_group(quantity: str) -> tuple[str | None, str]:
    """The group whose classes a quantity is of, if one is named, and the quantity."""
    match = _GROUP.fullmatch(quantity)
    return (None, quantity) if match is None else (match["group"], match["quantity"])


def _quantity(audit: Audit, attack: str, quantity: str, groups: Groups) -> tuple[float, float, float]:
    """A quantity with its interval; without one, the value three times."""
    rows = audit.rows(attack)
    group, quantity = _of_group(quantity)
    if group is not None:
        rows = _rows_of(rows, group, lookup("group of classes", group, groups))
    if (match := _CLASS.fullmatch(quantity)) is None:
        return _metric(quantity).estimate(rows, audit.confidence)
    found = accuracy.compute(rows, confidence=audit.confidence)
    check_known("class", found.class_names, match[1])
    number = found.class_names.index(match[1])
    if found.support[number] == 0:
        raise UserError(f"class {match[1]!r} has no example in this audit, so nothing can be required of it.")
    return float(found.values[number]), float(found.low[number]), float(found.high[number])


def _rows_of(rows: Records, group: str, members: Sequence[str]) -> Records:
    """The rows of the classes of a group."""
    check_known("class", rows.class_names, *members)
    numbers = [rows.class_names.index(name) for name in members]
    chosen = np.flatnonzero(np.isin(rows.label, numbers))
    if len(chosen) == 0:
        raise UserError(
            f"no class of the group {group!r} has an example in this audit, so nothing can be required of it."
        )
    return rows.take(chosen)
