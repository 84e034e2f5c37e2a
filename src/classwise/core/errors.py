"""Errors a user can act on: each names the value, what was expected, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

_LISTED = 60  # names that an error lists; of more than that, the nearest few
_NEAR = 10


class UserError(ValueError):
    """An invalid input; the message says what was expected and what to do. The command line adds no traceback."""


class Unfinished(UserError):
    """A shard of a run is done and others are not, so that there is no result yet; the command line just says so."""


def index_of(name: str | int, names: Sequence[str], kind: str) -> int:
    """The number of something given by name or number; an error with the near miss where there is none."""
    text = str(name).strip()
    if text in names:
        return list(names).index(text)
    if text.isdigit() and int(text) < len(names):
        return int(text)
    raise unknown(kind, text, names)


def check_known(kind: str, known: Collection[str], *names: object) -> None:
    """Raise for the first of the names, but for None, that is not a known one."""
    for name in names:
        if name is not None and name not in known:
            raise unknown(kind, name, known)


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """What is known by that name."""
    check_known(kind, known, name)
    return known[name]


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """An error for a name that does not exist, naming the nearest one that does; of many names only the nearest few."""
    names, name = sorted(known), str(name)
    by_lower = {known_name.lower(): known_name for known_name in names}
    near = [by_lower[one] for one in difflib.get_close_matches(name.lower(), by_lower, n=_NEAR, cutoff=0.5)]
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listed = names if len(names) <= _LISTED else sorted(near) or names[:_NEAR]
    more = f" and {len(names) - len(listed)} others" if len(listed) < len(names) else ""
    return UserError(f"unknown {kind} {name!r}{hint} Known: {', '.join(listed) or 'none'}{more}.")
