"""The options of a study for its help: its fields, described by its docstring and those of its base classes.

A docstring says ``name: meaning.`` or ``name, other: meaning;``, one after another.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from classwise.studies.runner.study import Study

_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}


@dataclass(frozen=True)
class Option:
    """One option: how it is typed, the kind of value, the default, and the meaning."""

    flag: str
    kind: str
    default: str
    meaning: str


def flag(field: str) -> str:
    """How a field is typed: per_class as --per-class."""
    return "--" + field.replace("_", "-")


def options(cls: type[Study]) -> list[Option]:
    """Every option of a study, its own first."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    meant = meanings(cls, fields)
    first = [name for name in vars(cls).get("__annotations__", {}) if name in fields]
    return [
        Option(flag(name), _kind(hints[name]), _default(fields[name].default), meant.get(name, ""))
        for name in dict.fromkeys((*first, *fields))
    ]


def meanings(cls: type, names: Collection[str]) -> dict[str, str]:
    """What the docstrings say about each field; the most derived class wins."""
    found: dict[str, str] = {}
    for owner in cls.__mro__:
        if dataclasses.is_dataclass(owner):
            for name, meaning in _items(inspect.cleandoc(owner.__doc__ or ""), names):
                found.setdefault(name, meaning)
    return found


def _items(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    whole = " ".join(text.split())
    starts = [
        match
        for match in re.finditer(r"(?<![\w-])(\w+(?:, \w+)*): ", whole)
        if all(name in names for name in match[1].split(", "))
    ]
    ends = [match.start() for match in starts[1:]] + [len(whole)]
    for match, end in zip(starts, ends, strict=False):
        # A heading between two items is no part of the first: "Of white: attack: …".
        meaning = re.sub(r"(?<=[.;]) Of \w+: *$", "", whole[match.end() : end])
        for name in match[1].split(", "):
            yield name, meaning.strip().rstrip(".;")


def _kind(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), [part for part in typing.get_args(hint) if part is not type(None)]
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_kind, parts))
    if origin is typing.Literal:
        return "|".join(map(str, parts))
    if origin is tuple:
        return "text, repeatable" if parts[0] is str else f"{_kind(parts[0])}s, 1,2,3"
    return _KINDS.get(hint, "text")


def _default(value: Any) -> str:
    if value is None or value == () or value is dataclasses.MISSING:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
