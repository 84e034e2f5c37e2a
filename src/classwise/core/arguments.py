"""Arguments of public functions, checked by their annotations: a value of another kind is a `UserError` that names it.

    @checked
    def audit(model: Any, data: Any, *, limit: int | None = None, out: str | Path | None = None): ...

    audit(model, data, limit="many")        # UserError: limit must be a whole number, got 'many'.

Numbers, truth values and choices are read as those of a spec are (`spec.convert`), bounds included. Text, paths,
sequences and objects must be what they are annotated as. What is annotated as `Any` is left to the function.
"""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from classwise.core.errors import UserError, unknown
from classwise.core.spec import choice, convert, read_as_one_of


class WrongCall(UserError, TypeError):
    """A call with an argument too many or too few."""


P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function with its arguments checked and converted before they reach it."""
    signature = inspect.signature(function)
    hints = functools.cache(lambda: typing.get_type_hints(function, include_extras=True))  # names may be defined later

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            extra = [key for key in kwargs if key not in signature.parameters]
            known = unknown(f"argument of {function.__name__}", extra[0], signature.parameters) if extra else None
            raise WrongCall(str(known or f"{function.__name__}: {error}.")) from None
        for name, value in given.arguments.items():
            given.arguments[name] = argument(value, hints().get(name, Any), name)
        return function(*given.args, **given.kwargs)

    return call


def argument(value: Any, kind: Any, where: str) -> Any:
    """`value` as an argument annotated with `kind`."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, typing.get_args(kind), where)
    if origin is Literal:
        return choice(value, typing.get_args(kind), where)
    if kind in (bool, int, float) or origin is Annotated:
        return convert(_number(value), kind, where)
    wanted = _class_of(kind)
    accepted = (str, os.PathLike) if wanted is Path else wanted
    sequence = wanted is not None and wanted.__module__ == "collections.abc"
    if accepted is None or (isinstance(value, accepted) and not (sequence and _without_items(value))):
        return _items(value, kind, where)
    raise UserError(f"{where} must be {_called(wanted)}, got {reprlib.repr(value)}.")


def _without_items(value: Any) -> bool:
    """Whether a value passes for a sequence without being one that is meant: text, bytes, an array of no dimension."""
    return isinstance(value, (str, bytes, bytearray)) or (
        isinstance(value, Iterable) and getattr(value, "ndim", None) == 0
    )


def _items(value: Any, kind: Any, where: str) -> Any:
    """A list, tuple or mapping with everything in it checked; any other value as it is."""
    args = typing.get_args(kind)
    if args and isinstance(value, (list, tuple, range, set, frozenset)):
        made = [argument(item, args[0], f"{where}[{place}]") for place, item in enumerate(value)]
        return tuple(made) if isinstance(value, tuple) else made
    if len(args) == 2 and isinstance(value, dict):
        kind_of_key, kind_of_value = args
        return {
            argument(key, kind_of_key, f"a key of {where}"): argument(item, kind_of_value, f"{where}[{key!r}]")
            for key, item in value.items()
        }
    return value


def _class_of(kind: Any) -> type | None:
    """The class that values of this kind are instances of; None where that cannot be asked."""
    origin = typing.get_origin(kind)
    wanted = typing.get_args(kind)[0] if origin is Annotated else origin or kind
    askable = isinstance(wanted, type) and wanted is not Any and not getattr(wanted, "_is_protocol", False)
    return wanted if askable else None


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    """The value as the first kind that it is an instance of; if there is none, as the first that it converts to."""
    if Any in kinds or (value is None and type(None) in kinds):
        return value
    if Path in kinds:
        _check_path(value, where)
    several = sorted((kind for kind in kinds if kind is not type(None)), key=lambda kind: not _fits(value, kind))
    if len(several) == 1 or _fits(value, several[0]):
        return argument(value, several[0], where)
    *most, last = dict.fromkeys(_called(_class_of(kind)) for kind in several)
    wanted = f"{', '.join(most)} or {last}" if most else last
    refusal = UserError(f"{where} must be {wanted}, got {reprlib.repr(value)}.")
    return read_as_one_of(several, lambda kind: argument(value, kind, where), refusal)


def _check_path(value: Any, where: str) -> None:
    """Raise where text or a path can name no file: the operating system's own error would come from somewhere deep."""
    if isinstance(value, (str, os.PathLike)):
        name = os.fspath(value)
        name = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
        if b"\0" in name or max(map(len, name.split(b"/"))) > _LONGEST_NAME:
            raise UserError(f"{where} is no path that a file can have: {reprlib.repr(value)}.")


def _fits(value: Any, kind: Any) -> bool:
    wanted = _class_of(kind)
    if isinstance(value, bool):
        return wanted is bool
    return wanted is not None and isinstance(value, wanted)


def _called(wanted: type | None) -> str:
    return "something else" if wanted is None else _NAMES.get(wanted, wanted.__name__)


def _number(value: Any) -> Any:
    """A number of numpy or a tensor of one element as Python's own; anything else as it is."""
    single = getattr(value, "ndim", None) == 0 and not getattr(value, "is_meta", False)
    return value.item() if single and callable(getattr(value, "item", None)) else value


_LONGEST_NAME = 255  # bytes, on every usual file system
_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number such as 8/255 or 0.031",
    str: "text",
    Path: "a path",
    Sequence: "a sequence",
    Iterable: "a sequence",
    Mapping: "a mapping",
}
