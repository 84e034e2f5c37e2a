"""Studies, one file each; the file's name is the study's name. What they are made with has folders of its own.

    studies.run(studies.parse("weight-norm", {"model": ["runs/trades/best.pt"]}), "runs/norms")

A study says which trainings and audits it needs (`jobs`) and what it makes of them (`result`): tables, figures, and
for each claim of the papers whether it held. Names are imported when first used: a process that does one job needs
neither figures nor, often, torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from classwise.core import spec

if TYPE_CHECKING:
    from classwise.studies.runner.result import Claim, StudyResult
    from classwise.studies.runner.study import OfModels, Study, run

_HOME = {"Claim": "result", "OfModels": "study", "StudyResult": "result", "Study": "study", "run": "study"}

__all__ = ["Claim", "OfModels", "Study", "StudyResult", "describe", "names", "parse", "run", "study_class", "usage"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.runner.{_HOME[name]}"), name)


def names() -> list[str]:
    """Every study there is."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def study_class(name: str) -> type[Study]:
    """The dataclass of the study called `name`: weight-norm's is WeightNorm, in weight_norm.py."""
    found = spec.class_in(__name__, name, "study", names())
    from classwise.studies.runner.study import Study

    assert issubclass(found, Study)
    return found


def describe(name: str) -> str:
    """The study's own first sentence."""
    return (inspect.getdoc(inspect.getmodule(study_class(name))) or "").splitlines()[0]


def usage(name: str) -> str:
    """The study's options with their defaults."""
    return spec.usage(study_class(name))


def parse(name: str, options: Mapping[str, Any]) -> Study:
    """The study called `name` with the given options; numbers of a list may be written ``1,2,5``."""
    cls = study_class(name)
    hints = typing.get_type_hints(cls)
    lists = {field.name for field in dataclasses.fields(cls) if typing.get_origin(hints[field.name]) is tuple}
    given = {key: _items(value, hints[key]) if key in lists else value for key, value in options.items()}
    return spec.configure(cls, given, name)


def _items(value: Any, kind: Any) -> Any:
    """The items of a list as it is typed: given several times, or, if they are numbers, with commas between them."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if typing.get_args(kind)[0] is str:
        return items
    return [part for item in items for part in (item.split(",") if isinstance(item, str) else [item])]
