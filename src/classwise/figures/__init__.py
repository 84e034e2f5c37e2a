"""Figures, one file each; the file's name is the figure's name. One chart serves the page and the paper.

    chart = figures.confusion.draw(records)                        # an Altair chart, shown by a notebook as it is
    figures.save(chart, "confusion.pdf", width="column")           # PDF, SVG or PNG, without a browser or a network
    figures.from_runs("confusion", {"trades": audit}, attack="pgd-20")

A figure's `draw` takes tables or records. `from_runs`, where a figure has it, takes finished audits by name, so that
``classwise figure NAME RUN…`` can draw it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from classwise import spec
from classwise.errors import UserError, unknown
from classwise.figures.style import Chart, save
from classwise.results import Audit

__all__ = ["describe", "from_runs", "names", "save", "usage"]


@functools.cache
def _modules() -> dict[str, ModuleType]:
    found = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {module.__name__.rpartition(".")[2]: module for module in found if hasattr(module, "draw")}


def _module(name: str) -> ModuleType:
    try:
        return _modules()[name]
    except KeyError:
        raise unknown("figure", name, _modules()) from None


def names() -> list[str]:
    """Every figure there is."""
    return sorted(_modules())


def describe(name: str) -> str:
    """What a figure shows, in one line."""
    return (inspect.getdoc(_module(name)) or "").split("\n", 1)[0]


def usage(name: str) -> str:
    """The options of a figure that is drawn from run folders, with their defaults."""
    make = getattr(_module(name), "from_runs", None)
    return "" if make is None else spec.usage(make, skip=("audits",))


def from_runs(name: str, audits: Mapping[str, Audit], **options: Any) -> Chart:
    """A figure of finished audits, by the names they are to bear."""
    make = getattr(_module(name), "from_runs", None)
    if make is None:
        raise UserError(f"{name} is not drawn from run folders; call classwise.figures.{name}.draw with its table.")
    hints = inspect.get_annotations(make, eval_str=True)
    known = {key: kind for key, kind in hints.items() if key not in ("audits", "return")}
    spec.check_keys(options, known, name)
    return make(audits, **{key: spec.convert(value, known[key], f"{name}.{key}") for key, value in options.items()})
