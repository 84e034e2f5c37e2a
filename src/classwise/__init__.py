"""classwise: class-by-class adversarial robustness.

    import classwise as cw
    audit = cw.audit(model, (x, y), attacks=["pgd-20"], eps="8/255")
    audit.by_class(), audit.worst, audit.summary(), audit.confusion("pgd-20")

Names are imported when first used, so that records, metrics and tables work where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from classwise.core.version import __version__

if TYPE_CHECKING:
    from classwise.auditing.audit import audit
    from classwise.auditing.find_worst import find_worst
    from classwise.citing.cite import cite
    from classwise.core.errors import UserError
    from classwise.core.per_class import PerClass
    from classwise.core.records import Records
    from classwise.core.threat import Threat
    from classwise.data import load as load_data
    from classwise.models import load_model
    from classwise.models.black_box import BlackBox
    from classwise.published.leaderboard import leaderboard
    from classwise.repairing.repair import repair
    from classwise.results.audit_result import Audit
    from classwise.results.compare import compare
    from classwise.results.compare_groups import compare_groups
    from classwise.results.leaderboard import Leaderboard
    from classwise.results.repair_result import RepairResult
    from classwise.show.dossier import dossier
    from classwise.show.figures import chart
    from classwise.training.train import train

_HOME = {
    "Audit": "classwise.results.audit_result",
    "BlackBox": "classwise.models.black_box",
    "Leaderboard": "classwise.results.leaderboard",
    "PerClass": "classwise.core.per_class",
    "Records": "classwise.core.records",
    "RepairResult": "classwise.results.repair_result",
    "Threat": "classwise.core.threat",
    "UserError": "classwise.core.errors",
    "chart": "classwise.show.figures",
    "audit": "classwise.auditing.audit",
    "cite": "classwise.citing.cite",
    "compare": "classwise.results.compare",
    "compare_groups": "classwise.results.compare_groups",
    "dossier": "classwise.show.dossier",
    "find_worst": "classwise.auditing.find_worst",
    "leaderboard": "classwise.published.leaderboard",
    "load_data": "classwise.data:load",
    "load_model": "classwise.models",
    "repair": "classwise.repairing.repair",
    "train": "classwise.training.train",
}

__all__ = [
    "Audit",
    "BlackBox",
    "Leaderboard",
    "PerClass",
    "Records",
    "RepairResult",
    "Threat",
    "UserError",
    "__version__",
    "audit",
    "chart",
    "cite",
    "compare",
    "compare_groups",
    "dossier",
    "find_worst",
    "leaderboard",
    "load_data",
    "load_model",
    "repair",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'classwise' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)
