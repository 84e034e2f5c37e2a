"""Whether the attacks were strong enough: their settings, what was found about them, and their optimality."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from classwise.core.records import CLEAN
from classwise.metrics import optimality
from classwise.results.audit_result import Audit

UNAVAILABLE = (
    "Not available: it needs distances from at least two attacks. Audit with --distances and two attacks that minimise "
    "the distance (fab, cw), or with --eps-grid and two attacks."
)


def of(audit: Audit) -> dict[str, Any]:
    """The attacks of a run, the findings, how many images each attack broke first, and the optimality by class."""
    attacks = optimality.rated_attacks(audit.records)
    rated = optimality.compute(audit.records, attacks) if len(attacks) > 1 else pd.DataFrame()
    return {
        "attacks": [_attack(audit, name) for name in audit.attacks],
        "findings": [finding.to_dict() for finding in audit.findings],
        "optimality": [
            {str(key): None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
            for row in rated.to_dict("records")
        ],
        "optimality_note": None if len(rated) else UNAVAILABLE,
    }


def _attack(audit: Audit, name: str) -> dict[str, Any]:
    info = audit.records.meta.attacks.get(name)
    settings = {} if info is None else {key: value for key, value in info.settings.items() if value is not None}
    return {
        "name": name,
        "settings": settings,
        "protocol": None if info is None else info.protocol,
        "coverage": None if info is None else info.coverage,
        "gradient": None if info is None else info.needs_gradient,
        "first_broken": audit.first_broken_by().get(name, 0),
        "misclassified_before": audit.first_broken_by().get(CLEAN, 0),
    }
