"""`Finding`: one thing that a check of the model or a rule over the records found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

#: error: do not trust the numbers. warning: read them with care. recommendation: what to do next. info: good to know.
Severity = Literal["error", "warning", "recommendation", "info"]
SERIOUS: tuple[Severity, ...] = ("error", "warning")  # of those the numbers suffer
_OLDER = {"serious": "error", "note": "info"}  # what summaries of schema 2 and before call them
#: What a rule yields: what was found, what to do about it, and the numbers both rest on.
Found: TypeAlias = Iterator[tuple[str, str, Mapping[str, Any]]]
_HEADINGS = {"error": "Warnings", "warning": "Warnings", "recommendation": "Recommendations", "info": "Notes"}


@dataclass(frozen=True)
class Finding:
    """A code for machines, how severe it is, and two sentences: what was found, and what to do about it.

    numbers: what the sentences were made of. section: the part of the docs that explains it.
    """

    code: str
    severity: Severity
    what: str
    remedy: str
    numbers: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    section: str = field(default="", kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Finding:
        """A finding as a summary stores it, also one of an older schema; ValueError for anything else."""
        values = dict(stored)
        level = values.pop("level", values.get("severity"))
        found = cls(**{**values, "severity": _OLDER.get(level, level)})
        words = (found.code, found.what, found.remedy, found.section)
        if not all(isinstance(word, str) for word in words) or found.severity not in get_args(Severity):
            raise ValueError("a finding is not made of text, or has no known severity")
        return found


def by_heading(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings under the headings they are shown by, the most severe first; a heading without any is left out."""
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: get_args(Severity).index(finding.severity)):
        groups.setdefault(_HEADINGS[finding.severity], []).append(finding)
    return groups
