"""What a report opens with: what was audited, the verdict in a line, what spoils it, and whether it passes its gate."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.format import listed, radius
from classwise.core.meta import AttackInfo
from classwise.core.records import CLEAN
from classwise.results.audit_result import Audit
from classwise.results.criteria import Criteria, recorded
from classwise.results.finding import SERIOUS, Finding
from classwise.show import gate

Scope = list[tuple[str, str]]

_NORMS = {"linf": "L∞", "l2": "L2"}
_MOST_ALERTS = 3  # findings on the first screen; the section has all of them
_MOST_ATTACKS = 4
_MOST_REQUIREMENTS = 12  # of the gate; a baseline has one for each class


def scope(audit: Audit) -> Scope:
    """What was audited, on what, against what, when and by which versions; what the folder does not say is left out."""
    lines = {
        "model": _model(audit.config),
        "data": _data(audit),
        "threat": _threat(audit),
        "attacks": listed(_attacks(audit), _MOST_ATTACKS),
        "date": day(audit.timing.get("finished")),
        "versions": ", ".join(
            f"{name} {audit.records.meta.versions[name]}"
            for name in ("classwise", "torch")
            if name in audit.records.meta.versions
        ),
    }
    return [(key, value) for key, value in lines.items() if value]


def common(audits: Mapping[str, Audit]) -> Scope:
    """The scope of several audits: what they have in common, and how many models there are."""
    scopes = [dict(scope(audit)) for audit in audits.values()]
    shared = [(key, value) for key, value in scopes[0].items() if all(own.get(key) == value for own in scopes)]
    return [("runs", listed([*audits], 6)), *shared]


def _model(config: Mapping[str, Any]) -> str:
    spec = str(_table(config, "model").get("spec", ""))
    weights = _table(config, "command").get("weights")
    return f"{spec}, weights {Path(str(weights)).name}" if spec and weights else spec


def _data(audit: Audit) -> str:
    command = _table(audit.config, "command")
    name = str(_table(audit.config, "data").get("name", ""))
    parts = [" ".join(filter(None, (name, str(command.get("split") or ""))))]
    parts.append(f"{len(audit.rows(CLEAN)):,} images of {audit.records.num_classes:,} classes")
    for key, words in (("per_class", "at most {:,} a class"), ("limit", "a sample of at most {:,}")):
        if isinstance(most := command.get(key), int):
            parts.append(words.format(most))
    return ", ".join(filter(None, parts))


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table of the settings; empty where it is missing, or the file was changed by hand and it is none."""
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _threat(audit: Audit) -> str:
    """``L∞ ≤ 4/255``; of a curve every radius."""
    meta = audit.records.meta
    if not audit.attacks:
        return "none"
    own = {info.eps for info in meta.attacks.values() if info.family is not None and info.eps is not None}
    radii = [radius(eps) for eps in sorted(own)] or [radius(meta.eps)]
    return threat(meta.norm, radii)


def threat(norm: str, radii: Sequence[str]) -> str:
    return f"{_NORMS.get(norm, norm)} ≤ {listed(radii, 8)}"


def _attacks(audit: Audit) -> list[str]:
    infos = audit.records.meta.attacks
    return list(dict.fromkeys(infos.get(name, AttackInfo()).family or name for name in audit.attacks))


def day(finished: Any) -> str:
    """``5 March 2026``; empty where it is not known."""
    try:
        found = datetime.date.fromisoformat(str(finished))
    except ValueError:
        return ""
    return f"{found.day} {found:%B %Y}"


def alerts(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings the numbers suffer from, the most severe first: those to be shown, and how many more there are."""
    serious = sorted((one for one in findings if one.severity in SERIOUS), key=lambda one: SERIOUS.index(one.severity))
    return {"shown": serious[:_MOST_ALERTS], "more": max(0, len(serious) - _MOST_ALERTS)}


def badge(audit: Audit, criteria: Criteria) -> dict[str, Any] | None:
    """Whether the audit meets the requirements, in words, and each of them; None where nothing is required.

    Without requirements those count that the audit recorded before its first attack.
    """
    if criteria:
        return _checked(audit, criteria, "")
    try:
        asked = recorded(audit)
        return _checked(audit, asked, ", recorded before the first attack") if asked else None
    except UserError as error:  # the baseline has moved, or the settings were changed by hand
        text = "The requirements that the audit recorded cannot be checked here"
        return {"word": "open", "text": text, "sentences": [str(error)], "notes": []}


def _checked(audit: Audit, criteria: Criteria, whence: str) -> dict[str, Any]:
    checked = criteria.check(audit)
    count = len(checked.results)
    what = "requirement holds" if count == 1 else "requirements hold"
    sentences = [sentence for sentence, _ in sorted(gate.lines(checked), key=lambda line: line[1])]  # failed ones first
    more = len(sentences) - _MOST_REQUIREMENTS
    return {
        "word": "passed" if checked.passed else "failed",
        "text": f"{count - len(checked.failed):,} of {count:,} {what}{whence}",
        "sentences": [*sentences[:_MOST_REQUIREMENTS], *([f"and {more:,} more"] if more > 0 else [])],
        "notes": list(checked.notes),
    }
