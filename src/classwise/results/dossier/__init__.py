"""An audit dossier as data: what an auditor asks for, from run folders of one model and a file of facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.core.errors import UserError
from classwise.results import comparable, criteria
from classwise.results.audit_result import Audit
from classwise.results.criteria import Criteria
from classwise.results.dossier import adequacy, identity, limits, standards, statistics, threat
from classwise.results.dossier.facts import FACTS, Facts

SCHEMA = 1


def collect(audits: Mapping[str, Audit], facts: Facts) -> dict[str, Any]:
    """Everything a dossier says, ready for JSON. The first run is the one that its first page is about."""
    if not audits:
        raise UserError("a dossier needs at least one run folder of a finished audit.")
    first = next(iter(audits))
    for name in audits:
        comparable.check_classes(audits, first, name)
    facts.check_classes(audits[first].records.class_names)
    numbers = {name: statistics.of(audit) for name, audit in audits.items()}
    return {
        "schema": SCHEMA,
        "first": first,
        "facts": {table: {key: facts.get(table, key) for key in keys} for table, keys in FACTS.items()},
        "missing": facts.missing(),
        "criticality": dict(facts.criticality),
        "identity": identity.collect(audits, facts),
        "threat": {name: threat.of(audit) for name, audit in audits.items()},
        "criteria": _criteria(audits[first], facts),
        "results": numbers,
        "statement": {name: statistics.statement(audit) for name, audit in audits.items()},
        "adequacy": {name: adequacy.of(audit) for name, audit in audits.items()},
        "drop": statistics.drop(audits, numbers),
        "corrupted": [name for name, audit in audits.items() if statistics.is_corrupted(audit)],
        "limits": [*limits.of(audits), *facts.limits],
        "standards": [dict(zip(("section", *standards.STANDARDS), row, strict=True)) for row in standards.MAPPING],
    }


def _criteria(audit: Audit, facts: Facts) -> dict[str, Any]:
    """The criteria that the run recorded when it began, or those of the facts, and whether they hold."""
    recorded = criteria.recorded(audit)
    asked: Criteria = recorded or facts.criteria
    checked = asked.check(audit)
    if not asked:
        when = "No criteria were stated. State them before the audit, with --require, or in [criteria] of the facts."
    elif recorded:
        when = "Fixed beforehand: the run folder recorded them before the first attack."
    else:
        when = (
            "From the file of facts. The run folder did not record them, so that they were fixed before the audit is "
            "the statement of the responsible person."
        )
    return {
        "stated": bool(asked),
        "recorded": bool(recorded),
        "when": when,
        "passed": checked.passed if asked else None,
        "confident": asked.confident,
        "results": [
            {"requirement": one.requirement, "passed": one.passed, "found": one.found, "interval": one.interval}
            for one in checked.results
        ],
        "notes": list(checked.notes),
    }
