"""Training methods, one file each; the file's name is the method's name.

methods.parse("trades", {"beta": {"dog": 0.5}})        # a frozen dataclass; its fields are the settings
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from classwise.core.registry import Registry, name_of
from classwise.methods.method import Batch, Loss, Method, State

__all__ = [
    "Batch",
    "Loss",
    "Method",
    "State",
    "describe",
    "knows",
    "method_class",
    "name_of",
    "names",
    "papers",
    "parse",
    "settings",
    "usage",
]

_REGISTRY = Registry(
    kind="method",
    plural="methods",
    package=__name__,
    accepts=lambda item: isinstance(item, type) and issubclass(item, Method),
    expected="a frozen dataclass derived from classwise.methods.Method",
)
names, knows, describe = _REGISTRY.names, _REGISTRY.knows, _REGISTRY.describe
papers, usage = _REGISTRY.papers, _REGISTRY.usage


def method_class(name: str) -> type[Method]:
    """The dataclass of the method called `name`: frl_rw's is FrlRw."""
    found: type[Method] = _REGISTRY.find(name).object
    return found


def parse(name: str, options: Mapping[str, Any]) -> Method:
    """The method called `name` with the given fields."""
    made: Method = _REGISTRY.configure(name, options)
    return made


def settings(method: Method) -> dict[str, Any]:
    """The method's fields with their values."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
