"""Every number that a user may set is declared with its bounds, and a value outside them is refused wherever it comes
from."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest

from classwise import attacks, methods
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import Bounds
from classwise.models import black_box, http
from classwise.repairing import config as repairing
from classwise.training import augment, averaging, awp, optimizer, parts, schedule
from for_each import for_each

KINDS: list[type[Any]] = [
    *(attacks.attack_class(name) for name in attacks.names()),
    *(methods.method_class(name) for name in methods.names()),
    *(parts.TrainingData, parts.TrainedModel, parts.TrainPart, parts.ValidatePart),
    *(kind for kinds in (augment.KINDS, averaging.KINDS, optimizer.KINDS, schedule.KINDS) for kind in kinds.values()),
    *(repairing.KnobPart, repairing.GoalPart, repairing.JudgePart),
    awp.Awp,
    black_box.Settings,
    http.Http,
]


#: Fields without a default.
NEEDED: dict[type[Any], dict[str, Any]] = {http.Http: {"url": "http://host/"}}


def numbers(kind: Any) -> Iterator[Bounds | None]:
    """The bounds of every number in an annotation; None for one without."""
    if kind in (int, float):
        yield None
    elif typing.get_origin(kind) is Annotated:
        inside = [part for part in typing.get_args(kind)[1:] if isinstance(part, Bounds)]
        yield from inside or numbers(typing.get_args(kind)[0])
    elif typing.get_origin(kind) is not typing.Literal:
        for part in typing.get_args(kind):
            yield from numbers(part)


def fields() -> Iterator[tuple[type[Any], str, Any]]:
    for cls in KINDS:
        hints = typing.get_type_hints(cls, include_extras=True)
        yield from ((cls, field.name, hints[field.name]) for field in dataclasses.fields(cls) if field.init)


NUMBERS = [(cls, name, kind) for cls, name, kind in fields() if any(True for _ in numbers(kind))]


@for_each(("cls", "name", "kind"), NUMBERS)
def test_every_number_has_bounds(cls: type[Any], name: str, kind: Any) -> None:
    assert None not in list(numbers(kind)), (
        f"{cls.__name__}.{name} is a number without Bounds; Unbounded says it has none"
    )


def outside(bounds: Bounds) -> Iterator[float]:
    """The nearest numbers that are not allowed."""
    if bounds.least > -math.inf:
        yield bounds.least - 1
    if bounds.above > -math.inf:
        yield from (bounds.above, bounds.above - 1)
    if bounds.most < math.inf:
        yield bounds.most + 1
    if bounds.below < math.inf:
        yield bounds.below


@for_each(("cls", "name", "kind"), NUMBERS)
def test_what_is_outside_is_refused_in_python_and_in_specs(cls: type[Any], name: str, kind: Any) -> None:
    bounds = next(found for found in numbers(kind) if found is not None)
    for value in (*outside(bounds), math.nan, math.inf, True, 1j, "many", [[]]):
        if isinstance(value, (str, list)) and typing.get_origin(kind) is not Annotated:
            continue  # may be the other kind of value
        with pytest.raises(UserError):
            cls(**NEEDED.get(cls, {}), **{name: value})
        with pytest.raises(UserError):
            spec.configure(cls, {**NEEDED.get(cls, {}), name: str(value) if isinstance(value, float) else value}, "it")


@pytest.mark.parametrize(
    ("bounds", "value", "message"),
    [
        (Bounds(least=1), 0, "x must be at least 1, got 0."),
        (Bounds(above=0), 0.0, "x must be positive, got 0."),
        (Bounds(above=1), 1, "x must be above 1, got 1."),
        (Bounds(least=0, below=1), 1.5, "x must be at least 0 and below 1, got 1.5."),
        (Bounds(above=0, most=1), 2, "x must be positive and at most 1, got 2."),
        (Bounds(least=1, most=10**9), 0, "x must be at least 1, got 0."),
        (Bounds(least=1, most=10**9), 10**20, f"x must be at least 1 and at most 1000000000, got {10**20}."),
        (Bounds(least=1, note="It lengthens."), 0, "x must be at least 1, got 0. It lengthens."),
    ],
)
def test_the_error_says_what_is_allowed(bounds: Bounds, value: float, message: str) -> None:
    with pytest.raises(UserError) as caught:
        bounds.check(value, "x")
    assert str(caught.value) == message


def test_values_of_a_mapping_are_checked_by_name() -> None:
    made = spec.convert({"cat": "1/2"}, Mapping[str, spec.NonNegative], "w")
    assert made == {"cat": 0.5}
    with pytest.raises(UserError, match=r"^w\[dog\] must be at least 0, got -1\.$"):
        spec.convert({"dog": -1}, methods.method.ClassValues, "w")
