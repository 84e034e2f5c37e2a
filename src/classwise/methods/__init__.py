"""Training methods, one file each; the file's name is the method's name.

methods.parse("trades", {"beta": {"dog": 0.5}})        # a frozen dataclass; its fields are the settings
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from classwise.core import spec
from classwise.methods.method import Batch, Loss, Method, State

__all__ = [
    "Batch",
    "Loss",
    "Method",
    "State",
    "describe",
    "method_class",
    "name_of",
    "names",
    "parse",
    "settings",
    "usage",
]

_NOT_METHODS = {"method"}


def names() -> list[str]:
    """Every method there is."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NOT_METHODS)


def method_class(name: str) -> type[Method]:
    """The dataclass of the method called `name`: frl_rw's is FrlRw."""
    found = spec.class_in(__name__, name, "method", names())
    assert issubclass(found, Method)
    return found


def describe(name: str) -> str:
    """The method's own first sentence."""
    return (inspect.getdoc(inspect.getmodule(method_class(name))) or "").splitlines()[0]


def usage(name: str) -> str:
    """The method's settings with their defaults."""
    return spec.usage(method_class(name))


def parse(name: str, options: Mapping[str, Any]) -> Method:
    """The method called `name` with the given fields."""
    return spec.configure(method_class(name), options, name)


def name_of(method: Method) -> str:
    """The name of the file a method is written in."""
    return type(method).__module__.rpartition(".")[2]


def settings(method: Method) -> dict[str, Any]:
    """The method's fields with their values."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
