"""Figures, one file each; the file's name is the figure's name. One chart serves the page and the paper.

    chart = figures.confusion.draw(records)                        # an Altair chart, shown by a notebook as it is
    figures.save(chart, "confusion.pdf", width="column")           # PDF, SVG or PNG, without a browser or a network
    figures.from_runs("confusion", {"trades": audit}, attack="pgd-20")
    figures.from_histories("epochs", {"trades": pd.read_csv("runs/trades/history.csv")})

A figure's `draw` takes tables or records. So that ``classwise figure NAME FOLDER…`` can draw it, it has one of three
more: `from_runs` takes finished audits by name, `from_history` the histories of trainings, and `from_study` the tables
that studies left.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal

import pandas as pd

from classwise.core import spec
from classwise.core.errors import UserError, unknown
from classwise.results.audit_result import Audit
from classwise.show.figures.studied import Tables
from classwise.show.figures.style import Chart, save, styled

__all__ = [
    "chart",
    "describe",
    "from_histories",
    "from_runs",
    "from_studies",
    "names",
    "save",
    "source",
    "sources",
    "styled",
    "usage",
]

#: What a figure is drawn from: finished audits, histories of trainings, or the tables of finished studies.
Source = Literal["audits", "histories", "studies"]

_MAKERS: dict[str, Source] = {"from_runs": "audits", "from_history": "histories", "from_study": "studies"}


@functools.cache
def _modules() -> dict[str, ModuleType]:
    found = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    makers = ("draw", *_MAKERS)
    figures = (module for module in found if hasattr(module, makers[0]))
    return {
        module.__name__.rpartition(".")[2]: module
        for module in figures
        if any(hasattr(module, maker) for maker in makers[1:])
    }


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


def sources(name: str) -> list[Source]:
    """All that a figure can be drawn from, the usual first."""
    return [kind for maker, kind in _MAKERS.items() if hasattr(_module(name), maker)]


def source(name: str) -> Source:
    """What a figure is usually drawn from."""
    return sources(name)[0]


def usage(name: str) -> str:
    """The options of a figure with their defaults, as it is usually drawn."""
    make = next(getattr(_module(name), maker) for maker in _MAKERS if hasattr(_module(name), maker))
    return spec.usage(make, skip=_MAKERS.values())


def chart(name: str, audit: Audit, **options: Any) -> Chart:
    """A figure of one audit, such as "forest" or "confusion"; see docs/figures.md."""
    return from_runs(name, {audit.folder.name if audit.folder is not None else "audit": audit}, **options)


def from_runs(name: str, audits: Mapping[str, Audit], **options: Any) -> Chart:
    """A figure of finished audits, by the names they are to bear."""
    return _make(name, "from_runs", audits, options)


def from_histories(name: str, histories: Mapping[str, pd.DataFrame], **options: Any) -> Chart:
    """A figure of trainings, from the tables in their history.csv, by the names they are to bear."""
    return _make(name, "from_history", histories, options)


def from_studies(name: str, studies: Mapping[str, Tables], **options: Any) -> Chart:
    """A figure of finished studies, from the tables they left (`studied.read`), by the names they are to bear."""
    return _make(name, "from_study", studies, options)


def _make(name: str, maker: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Chart:
    make: Callable[..., Chart] | None = getattr(_module(name), maker, None)
    if make is None:
        raise UserError(_instead(name, _MAKERS[maker]))
    if not given:
        raise UserError(f"{name} is drawn from {_MAKERS[maker]}: give at least one run folder.")
    hints = inspect.get_annotations(make, eval_str=True)
    known = {key: kind for key, kind in hints.items() if key not in (*_MAKERS.values(), "return")}
    spec.check_keys(options, known, name)
    return make(given, **{key: spec.convert(value, known[key], f"{name}.{key}") for key, value in options.items()})


def _instead(name: str, asked: Source) -> str:
    folders: dict[Source, str] = {
        "audits": "run folders of audits",
        "histories": "run folders of trainings (history.csv)",
        "studies": "folders of studies (classwise study)",
    }
    return f"{name} is drawn from {' or '.join(folders[kind] for kind in sources(name))}, not from {folders[asked]}."
