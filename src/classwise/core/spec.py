"""Specs: a name with arguments, as typed on a command line or written in TOML.

    pgd                                       name alone
    pgd-20                                    name and its leading argument (the first field, here `steps`)
    pgd:steps=20,step=0.003,restarts=5        name and arguments
    resnet:width=16,blocks=[1, 1, 1, 1]       a list
    transfer:attack=(pgd:steps=20,step=0.1)   a spec inside a spec
    mine.py:Attack,steps=20                   something in a Python file, and arguments

Each sign has one meaning: ``:`` ends the name, ``=`` assigns, ``,`` separates, ``[ ]`` holds a list, ``( )`` text that
has commas of its own. In run folders, recipes and checkpoints specs may be older: `items` and `nested` also read the
signs that lists and inner specs had then (``1-1``, ``cat|dog``, ``0.5;0.5``, ``pgd:steps=20;step=0.1``).

A spec is configured into a frozen dataclass or a call: the fields are the keys, and an unknown key is an
error that names the near miss. What a number may be is declared with its field, ``steps: Count`` or
``rho: Annotated[float, Bounds(least=0, most=1)]``, and checked here, wherever the value comes from.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import numbers
import re
import types
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from classwise.core.errors import UserError, unknown

T = TypeVar("T")

_known_hints: weakref.WeakKeyDictionary[type[Any], dict[str, Any]] = weakref.WeakKeyDictionary()


class OutOfBounds(UserError):
    """A number of the right kind that its field does not allow."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a number may be: at least `least`, greater than `above`, at most `most`, less than `below`; `note` is added
    to the error, and says what the number means or what to write instead."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    note: str = ""

    def check(self, value: float, where: str) -> None:
        """Raise, in words, where `value` is outside."""
        if value >= self.least and value > self.above and value <= self.most and value < self.below:
            return
        wanted = " and ".join(filter(None, (self._low(), self._high(value))))
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        raise OutOfBounds(f"{where} must be {wanted}, got {shown}.{f' {self.note}' if self.note else ''}")

    def _low(self) -> str:
        if self.above > -math.inf:
            return "positive" if self.above == 0 else f"above {self.above:g}"
        return f"at least {self.least:g}" if self.least > -math.inf else ""

    def _high(self, value: float) -> str:
        """The upper bound; one that only computers have is named where it is exceeded."""
        if self.below < math.inf:
            return f"below {self.below:g}"
        return f"at most {self.most}" if self.most < 1e6 or self.most < value else ""


#: What has no bounds but that it is finite, and says so.
Unbounded: TypeAlias = Annotated[float, Bounds()]
Positive: TypeAlias = Annotated[float, Bounds(above=0)]
NonNegative: TypeAlias = Annotated[float, Bounds(least=0)]
Share: TypeAlias = Annotated[float, Bounds(least=0, most=1)]
PositiveShare: TypeAlias = Annotated[float, Bounds(above=0, most=1)]
OpenShare: TypeAlias = Annotated[float, Bounds(above=0, below=1)]
Fraction: TypeAlias = Annotated[float, Bounds(least=0, below=1)]
Count: TypeAlias = Annotated[int, Bounds(least=1, most=10**9)]
Natural: TypeAlias = Annotated[int, Bounds(least=0, most=10**9)]
Steps: TypeAlias = Annotated[int, Bounds(least=1, most=10**7)]
Seed: TypeAlias = Annotated[int, Bounds(least=0, most=2**63 - 1)]
Pixels: TypeAlias = Annotated[int, Bounds(least=1, most=8192)]
#: Text that is a list of specs or files, for `items` to read.
ListText: TypeAlias = Annotated[str, list]


def number(value: float | int | str) -> float:
    """A finite number as people in this field write it: ``8/255``, ``0.5/255``, ``1e-3`` or a plain number."""
    failure = UserError(f"expected a number such as 8/255 or 0.031, got {value!r}.")
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        raise failure
    above, slash, below = value.partition("/") if isinstance(value, str) else (value, "", "")
    try:
        parsed = float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise failure from None
    if not math.isfinite(parsed):
        raise failure
    return parsed


def exact(value: float) -> str:
    """A number as text from which `number` reads the very same one: 8/255 where it is one, else all its digits."""
    plain, levels = repr(float(value)), f"{round(510 * value) / 2:g}/255"
    return levels if number(levels) == value and len(levels) < len(plain) else plain


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_IN_FILE = re.compile(r"(?P<name>[^,=]+\.py:\w[\w./-]*)(?:[,:](?P<rest>.*))?")


def split(spec: str) -> tuple[str, dict[str, str]]:
    """``"name:key=value,key=value"`` as a name and its arguments, still text."""
    in_file = _IN_FILE.fullmatch(spec.strip())
    name, rest = (in_file["name"], in_file["rest"] or "") if in_file else spec.strip().partition(":")[::2]
    options: dict[str, str] = {}
    for part in filter(None, _pieces(rest, spec)):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"in {spec!r}: {part!r} is not of the form key=value.")
        key = key.strip().replace("-", "_")
        if key in options:
            raise UserError(f"in {spec!r}: {key} is given twice; leave one of them out.")
        options[key] = _bare(value)
    return name.strip(), options


_CLOSING = {"[": "]", "(": ")"}


def _pieces(text: str, spec: str) -> list[str]:
    """The text cut at its commas, except those inside brackets and parentheses."""
    pieces, open_signs = [""], ""
    for sign in text:
        if sign in _CLOSING:
            open_signs += sign
        elif sign in _CLOSING.values():
            if not open_signs or _CLOSING[open_signs[-1]] != sign:
                raise UserError(f"in {spec!r}: {sign!r} closes nothing; lists are [a, b], specs inside a spec (…).")
            open_signs = open_signs[:-1]
        if sign == "," and not open_signs:
            pieces.append("")
        else:
            pieces[-1] += sign
    if open_signs:
        raise UserError(f"in {spec!r}: {open_signs[-1]!r} is not closed; add {_CLOSING[open_signs[-1]]!r}.")
    return [piece.strip() for piece in pieces]


def _bare(value: str) -> str:
    """The value without parentheses around it."""
    value = value.strip()
    return value[1:-1].strip() if value.startswith("(") and value.endswith(")") else value


def items(text: str, older: str = r"(?<!\d[eE])-|[|;]") -> list[str]:
    """What is in the list ``[a, b]``; text without brackets is cut at the sign that separated items before, `older`."""
    if text.startswith("[") and text.endswith("]"):
        return [_bare(piece) for piece in _pieces(text[1:-1], text) if piece]
    return [item.strip() for item in re.split(older, text)]


def nested(text: str) -> str:
    """A spec that stood inside another one; in older ones ``;`` separates its arguments."""
    return text if "," in text else text.replace(";", ",")


def written(value: Any) -> str:
    """A value as a spec has it, with all its digits."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return repr(value) if isinstance(value, float) else f"({value})" if "," in str(value) else str(value)


def leading(name: str) -> tuple[str, str | None]:
    """``"pgd-20"`` as ``("pgd", "20")``; a name without a trailing number as ``(name, None)``."""
    match = re.fullmatch(r"(.+?)-(\d[\d./e-]*)", name)
    return (match[1], match[2]) if match else (name, None)


def choice(value: Any, choices: Sequence[Any], called: str) -> Any:
    """The one of the choices that is written like the value."""
    known = {str(option): option for option in choices}
    if str(value) not in known:
        raise unknown(called, value, known)
    return known[str(value)]


def convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as the annotated type `kind`: text is parsed, sequences become tuples."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        made = convert(value, args[0], where)
        for bounds in (part for part in args[1:] if isinstance(part, Bounds)):
            bounds.check(made, where)
        return made
    if origin in (typing.Union, types.UnionType):
        word = isinstance(value, str) and value in ("none", "None", "") and Path not in args
        if type(None) in args and (value is None or word):  # but a folder may be called so
            return None
        kinds = [option for option in args if option is not type(None)]
        return read_as_one_of(kinds, lambda option: convert(value, option, where))
    if origin is typing.Literal:
        return choice(value, args, f"value of {where}")
    if origin is tuple or (origin is collections.abc.Sequence and isinstance(value, str) and value.startswith("[")):
        several = items(value) if isinstance(value, str) else value
        several = several if isinstance(several, (list, tuple)) else [several]
        return tuple(convert(item, args[0], where) for item in several)
    if origin is collections.abc.Mapping:
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must be a table of names and values, got {value!r}.")
        return {str(name): convert(item, args[1], f"{where}[{name}]") for name, item in value.items()}
    if kind is bool:
        if not isinstance(value, (bool, str)) or str(value).lower() not in _TRUTH:
            raise UserError(f"{where} must be true or false, got {value!r}.")
        return _TRUTH[str(value).lower()]
    if kind is int:
        return _whole(value, where)
    if kind is float:
        try:
            return number(value)
        except UserError:
            raise UserError(f"{where} must be a number such as 8/255 or 0.031, got {value!r}.") from None
    return str(value) if kind is str else value


def read_as_one_of(kinds: Sequence[Any], read: Callable[[Any], Any], refusal: UserError | None = None) -> Any:
    """What the first of the kinds makes of a value that `read` can read as it. If there is none, a number out of bounds
    is the error, else the refusal, else all that was wrong."""
    failures = []
    for kind in kinds:
        try:
            return read(kind)
        except UserError as error:
            failures.append(error)
    outside = [error for error in failures if isinstance(error, OutOfBounds)]
    raise outside[0] if outside else refusal or UserError(" Or: ".join(dict.fromkeys(map(str, failures))))


def _whole(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        as_number = number(value)
    except UserError:
        as_number = math.nan
    if not as_number.is_integer():
        raise UserError(f"{where} must be a whole number, got {value!r}.")
    return int(as_number)


def check_keys(options: Mapping[str, Any], known: Mapping[str, Any], owner: str) -> None:
    """Raise for the first key of `options` that is not in `known`, with the near miss."""
    for key in options:
        if key not in known:
            raise unknown(f"setting of {owner}", key, known)


def takes_list(cls: type[Any], field: str) -> bool:
    """Whether a list is one value of the field, not several values to choose from."""
    kinds = [kind := hints_of(cls).get(field), *typing.get_args(kind)]
    return ListText in kinds or any(typing.get_origin(kind) in (tuple, collections.abc.Sequence) for kind in kinds)


def hints_of(cls: type[Any]) -> Mapping[str, Any]:
    """The annotations of a class, their bounds included; worked out once, since every spec that is read asks."""
    if cls not in _known_hints:
        _known_hints[cls] = typing.get_type_hints(cls, include_extras=True)
    return _known_hints[cls]


def configure(cls: type[T], options: Mapping[str, Any], owner: str) -> T:
    """An instance of the dataclass `cls` with `options` converted to its fields' types."""
    hints = hints_of(cls)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    check_keys(options, fields, owner)
    return cls(**{key: convert(value, fields[key], f"{owner}.{key}") for key, value in options.items()})


def validate_fields(instance: Any) -> None:
    """For a frozen dataclass's ``__post_init__``: convert its fields as a spec's would be, so that a bad value is an
    error wherever it comes from."""
    hints = hints_of(type(instance))
    for field in dataclasses.fields(instance):
        where = f"{type(instance).__name__}.{field.name}"
        object.__setattr__(instance, field.name, convert(getattr(instance, field.name), hints[field.name], where))
