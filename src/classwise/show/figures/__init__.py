"""Figures, one file each; the file's name is the figure's name. One chart serves the page and the paper.

    chart = figures.confusion.draw(records)                        # an Altair chart, shown by a notebook as it is
    figures.save(chart, "confusion.pdf", width="column")           # PDF, SVG or PNG, without a browser or a network
    figures.from_runs("confusion", {"trades": audit}, attack="pgd-20")
    figures.from_histories("epochs", {"trades": pd.read_csv("runs/trades/history.csv")})

A figure's `draw` takes tables or records. So that ``classwise figure NAME FOLDER…`` can draw it, it has one of five
more: `from_runs` takes finished audits by name, `from_history` the histories of trainings, `from_repairs` finished
repairs, `from_study` the tables that studies left, and `from_groups` a comparison of groups of runs over seeds.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal

import pandas as pd
from altair.utils import schemapi

from classwise.core.errors import UserError
from classwise.core.registry import Registry
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import GroupComparison
from classwise.results.repair_result import RepairResult
from classwise.show.figures.frames import Tables
from classwise.show.figures.style import Chart, save, styled

__all__ = [
    "chart",
    "describe",
    "from_groups",
    "from_histories",
    "from_repairs",
    "from_runs",
    "from_studies",
    "names",
    "save",
    "sources",
    "styled",
    "usage",
]

#: What a figure is drawn from: finished audits, histories of trainings, finished repairs, tables of studies, or groups
#: of audits.
Source = Literal["audits", "histories", "repairs", "studies", "groups"]

_MAKERS: dict[str, Source] = {
    "from_runs": "audits",
    "from_history": "histories",
    "from_repairs": "repairs",
    "from_study": "studies",
    "from_groups": "groups",
}


def _source_of(maker: Any) -> Source | None:
    """What a function draws from: the name of its first argument says so."""
    first = next(iter(inspect.signature(maker).parameters), "") if callable(maker) else ""
    return next((kind for kind in _MAKERS.values() if kind == first), None)


_REGISTRY = Registry(
    kind="figure",
    plural="figures",
    package=__name__,
    functions=tuple(_MAKERS),
    given=tuple(_MAKERS.values()),
    accepts=lambda item: _source_of(item) is not None,
    expected="a function whose first argument is audits, histories, repairs, studies or groups",
)
names, describe, usage = _REGISTRY.names, _REGISTRY.describe, _REGISTRY.usage


def __getattr__(name: str) -> ModuleType:
    """`figures.confusion` without an import of its own."""
    if importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def _makers(name: str) -> dict[Source, Callable[..., Chart]]:
    """What draws a figure, by what it is drawn from; the usual first."""
    found = _REGISTRY.find(name)
    together = [vars(found.module).get(maker) for maker in _MAKERS]
    makers: list[Any] = together if found.object in together else [found.object]
    return {kind: maker for maker in makers if (kind := _source_of(maker)) is not None}


def sources(name: str) -> list[Source]:
    """All that a figure can be drawn from, the usual first."""
    return list(_makers(name))


def chart(name: str, audit: Audit, **options: Any) -> Chart:
    """A figure of one audit, such as "forest" or "confusion"; see docs/figures.md."""
    return from_runs(name, {audit.folder.name if audit.folder is not None else "audit": audit}, **options)


def from_runs(name: str, audits: Mapping[str, Audit], **options: Any) -> Chart:
    """A figure of finished audits, by name."""
    return _make(name, "audits", audits, options)


def from_histories(name: str, histories: Mapping[str, pd.DataFrame], **options: Any) -> Chart:
    """A figure of trainings, from the tables in their history.csv, by name."""
    return _make(name, "histories", histories, options)


def from_repairs(name: str, repairs: Mapping[str, RepairResult], **options: Any) -> Chart:
    """A figure of finished repairs, by name."""
    return _make(name, "repairs", repairs, options)


def from_studies(name: str, studies: Mapping[str, Tables], **options: Any) -> Chart:
    """A figure of finished studies, from the tables they left (`frames.read`), by name."""
    return _make(name, "studies", studies, options)


def from_groups(name: str, groups: GroupComparison, **options: Any) -> Chart:
    """A figure of a comparison of groups of runs over seeds."""
    return _make(name, "groups", groups, options)


def _make(name: str, asked: Source, given: Any, options: Mapping[str, Any]) -> Chart:
    make = _makers(name).get(asked)
    if make is None:
        raise UserError(_instead(name, asked))
    if not given:
        raise UserError(f"{name} is drawn from {asked}: give at least one run folder.")
    arguments = _REGISTRY.arguments(make, options, name)
    with schemapi.debug_mode(not make.__module__.startswith(f"{__name__}.")):  # Altair's checks are for users' figures
        return make(given, **arguments)


def _instead(name: str, asked: Source) -> str:
    folders: dict[Source, str] = {
        "audits": "run folders of audits",
        "histories": "run folders of trainings (history.csv)",
        "repairs": "run folders of repairs (classwise repair)",
        "studies": "folders of studies (classwise study)",
        "groups": "groups of audits (--group)",
    }
    return f"{name} is drawn from {' or '.join(folders[kind] for kind in sources(name))}, not from {folders[asked]}."
