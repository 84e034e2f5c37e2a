"""Studies, one file or folder each, which gives the study its name; `runner` and `shared` are what they are made with.

    studies.run(studies.parse("weight-norm", {"model": ["runs/trades/best.pt"]}), "runs/norms")

A study says which trainings and audits it needs (`jobs`) and what it makes of them (`result`): tables, figures, and
for each claim of the papers whether it held. Names are imported when first used: a process that does one job needs
neither figures nor, often, torch.
"""

from __future__ import annotations

import importlib
import re
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from classwise.core import spec
from classwise.core.registry import Registry

if TYPE_CHECKING:
    from classwise.studies.runner.result import Claim, StudyResult
    from classwise.studies.runner.study import OfModels, Study, run

_HOME = {"Claim": "result", "OfModels": "study", "StudyResult": "result", "Study": "study", "run": "study"}

__all__ = [
    "Claim",
    "OfModels",
    "Study",
    "StudyResult",
    "describe",
    "knows",
    "names",
    "parse",
    "run",
    "study_class",
    "usage",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.runner.{_HOME[name]}"), name)


def _is_study(item: Any) -> bool:
    from classwise.studies.runner.study import Study

    return isinstance(item, type) and issubclass(item, Study)


_REGISTRY = Registry(
    kind="study",
    plural="studies",
    package=__name__,
    separator="-",
    accepts=_is_study,
    expected="a frozen dataclass derived from classwise.studies.Study",
)
_NAMES = re.compile(r"[\w./+-]+(,[\w./+-]+)+")  # several, without settings and without blanks
names, knows, describe, usage = _REGISTRY.names, _REGISTRY.knows, _REGISTRY.describe, _REGISTRY.usage


def study_class(name: str) -> type[Study]:
    """The dataclass of the study called `name`: weight-norm's is WeightNorm, in weight_norm.py."""
    found: type[Study] = _REGISTRY.find(name).object
    return found


def parse(name: str, options: Mapping[str, Any]) -> Study:
    """The study called `name` with the given options; numbers of a list may be written ``[1, 2, 5]`` or ``1,2,5``, and
    a list without any item ``none``."""
    cls = study_class(name)
    hints = spec.hints_of(cls)
    lists = {key for key, kind in hints.items() if typing.get_origin(kind) is tuple}
    given = {key: _items(value, hints[key]) if key in lists else value for key, value in options.items()}
    return spec.configure(cls, given, name)


def _items(value: Any, kind: Any) -> Any:
    """The items of a list as it is typed: given several times, or with commas between them. Of text only names are cut
    at commas: those of a spec with settings, ``pgd:steps=5,step=0.1``, belong to it."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if items == ["none"]:
        return []
    cut = _names if typing.get_args(kind)[0] is str else lambda item: spec.items(item, older=",")
    return [part for item in items for part in (cut(item) if isinstance(item, str) else [item])]


def _names(text: str) -> list[str]:
    return text.split(",") if _NAMES.fullmatch(text) else [text]
