"""One of several kinds by spec or table: ``"step:milestones=[75, 90]"``, ``{name = "step", milestones = [75, 90]}``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from classwise.core import spec
from classwise.core.errors import UserError, unknown

T = TypeVar("T")


def choose(kinds: Mapping[str, type[T]], wanted: str | Mapping[str, Any] | T, what: str) -> T:
    """The dataclass of `kinds` that `wanted` names, configured; an instance is returned as it is.

    ``"crop-4"`` gives the first field, as in the specs of attacks.
    """
    for kind in kinds.values():
        if isinstance(wanted, kind):
            return wanted
    if isinstance(wanted, str):
        name, options = spec.split(wanted)
        name, first = (name, None) if name in kinds else spec.leading(name)
    elif isinstance(wanted, Mapping):
        name, first, options = str(wanted.get("name", "")), None, {k: v for k, v in wanted.items() if k != "name"}
    else:
        raise UserError(f"{wanted!r} is no {what}: give a spec such as {next(iter(kinds))!r}, or a table with a name.")
    if name not in kinds:
        raise unknown(what, name, kinds)
    if first is not None:
        options = _with_first(kinds[name], first, options, str(wanted))
    return spec.configure(kinds[name], options, name)


def _with_first(cls: type[Any], value: str, options: Mapping[str, Any], text: str) -> dict[str, Any]:
    field = next(iter(inspect.signature(cls).parameters), None)
    if field is None:
        raise UserError(f"{text!r}: {cls.__name__.lower()} takes no argument.")
    if field in options:
        raise UserError(f"{text!r} gives {field} twice; leave one of them out.")
    return {field: value, **options}
