"""Entries of a TOML file that begin from one another: ``like = "other"`` takes over what the entry does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.core.errors import UserError, unknown


def resolved(entries: Mapping[str, Mapping[str, Any]], what: str = "entry") -> dict[str, dict[str, Any]]:
    """Every entry with what it takes over from the one it is like, and from that one's, however far this leads."""
    return {name: _whole(name, entries, what, ()) for name in entries}


def _whole(name: str, entries: Mapping[str, Mapping[str, Any]], what: str, before: tuple[str, ...]) -> dict[str, Any]:
    if name in before:
        raise UserError(f"{what} {before[0]} is like itself: {' -> '.join((*before, name))}.")
    if name not in entries:
        raise unknown(what, name, entries)
    own = dict(entries[name])
    other = own.pop("like", None)
    return own if other is None else {**_whole(other, entries, what, (*before, name)), **own}
