"""classwise: class-by-class adversarial robustness.

    import classwise as cw
    audit = cw.audit(model, (x, y), attacks=["pgd-20"], eps="8/255")
    audit.by_class(), audit.worst, audit.summary(), audit.confusion("pgd-20")

Names are imported when first used, so that records, metrics and tables work where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from classwise.datasets import load as load_data
    from classwise.errors import UserError
    from classwise.evaluation.audit import audit
    from classwise.evaluation.find_worst import find_worst
    from classwise.models import load_model
    from classwise.models.black_box import BlackBox
    from classwise.records import PerClass, Records
    from classwise.results import Audit
    from classwise.threat import Threat
    from classwise.training.train import train

_HOME = {
    "Audit": "classwise.results",
    "BlackBox": "classwise.models.black_box",
    "PerClass": "classwise.records",
    "Records": "classwise.records",
    "Threat": "classwise.threat",
    "UserError": "classwise.errors",
    "audit": "classwise.evaluation.audit",
    "find_worst": "classwise.evaluation.find_worst",
    "load_data": "classwise.datasets:load",
    "load_model": "classwise.models",
    "train": "classwise.training.train",
}

__all__ = [
    "Audit",
    "BlackBox",
    "PerClass",
    "Records",
    "Threat",
    "UserError",
    "__version__",
    "audit",
    "find_worst",
    "load_data",
    "load_model",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'classwise' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)
