"""Entries of a TOML file that inherit from one another: ``like = "other"`` inherits what the entry does not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.core.errors import UserError, lookup


def resolve_likes(entries: Mapping[str, Mapping[str, Any]], what: str = "entry") -> dict[str, dict[str, Any]]:
    """Every entry with what it inherits from the one it is like, directly and indirectly."""
    return {name: _resolve(name, entries, what, ()) for name in entries}


def _resolve(name: str, entries: Mapping[str, Mapping[str, Any]], what: str, before: tuple[str, ...]) -> dict[str, Any]:
    if name in before:
        raise UserError(f"{what} {before[0]} is like itself: {' -> '.join((*before, name))}.")
    own = dict(lookup(what, name, entries))
    other = own.pop("like", None)
    return own if other is None else {**_resolve(other, entries, what, (*before, name)), **own}
