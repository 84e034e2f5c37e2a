"""Specs: what may be written, what it becomes, and how a mistake is named."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from classwise.core import registry, run_config, spec
from classwise.core.errors import UserError


@dataclass(frozen=True)
class Sample:
    """One field of every kind a configuration may have."""

    steps: int = 20
    step: float | None = None
    start: Literal["uniform", "gaussian", "none"] = "uniform"
    clamp: bool = True
    target: int | Literal["random", "likely"] | None = None
    blocks: tuple[int, ...] = (1, 1)
    scales: tuple[float, ...] = (0.5,)
    level: Literal[1, 2, 3] = 1
    name: str = "plain"

    def __post_init__(self) -> None:
        spec.validate_fields(self)


def configured(**options: Any) -> Sample:
    return spec.configure(Sample, options, "sample")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8/255", 8 / 255),
        (" 8 / 255 ", 8 / 255),
        ("0.5/255", 0.5 / 255),
        ("0.031", 0.031),
        ("1e-3", 0.001),
        ("-2", -2.0),
        (3, 3.0),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (Fraction(1, 3), 1 / 3),
    ],
)
def test_numbers_as_people_write_them(written: Any, value: float) -> None:
    assert spec.number(written) == value


@pytest.mark.parametrize(
    "written",
    ["", "eight", "8/", "/255", "8/0", "1/2/3", "inf", "nan", "1e400", float("inf"), 10**400, True, None, [8]],
)
def test_what_is_not_a_number_is_named(written: Any) -> None:
    with pytest.raises(UserError) as caught:
        spec.number(written)
    assert repr(written) in str(caught.value)
    assert "8/255" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("pgd", "pgd", {}),
        ("pgd:", "pgd", {}),
        (" pgd : steps = 20 , step=0.003 ", "pgd", {"steps": "20", "step": "0.003"}),
        ("resnet:width=16,blocks=1-1-1-1", "resnet", {"width": "16", "blocks": "1-1-1-1"}),
        ("resnet:blocks=[1, 1],width=16", "resnet", {"blocks": "[1, 1]", "width": "16"}),
        (
            "transfer:attack=(pgd:steps=2,step=0.1),store=a",
            "transfer",
            {"attack": "pgd:steps=2,step=0.1", "store": "a"},
        ),
        ("t:model=[(r:w=1,b=[1, 1]), vgg-16]", "t", {"model": "[(r:w=1,b=[1, 1]), vgg-16]"}),
        ("pgd:inv-temperature=2", "pgd", {"inv_temperature": "2"}),
        ("folder:path=a=b", "folder", {"path": "a=b"}),
        ("folder:path=c:d", "folder", {"path": "c:d"}),
    ],
)
def test_split(text: str, name: str, options: dict[str, str]) -> None:
    assert spec.split(text) == (name, options)


def test_split_refuses_what_is_not_key_equals_value() -> None:
    with pytest.raises(UserError, match=r"in 'pgd:steps': 'steps' is not of the form key=value"):
        spec.split("pgd:steps")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pgd:steps=[1, 2", "in 'pgd:steps=[1, 2': '[' is not closed; add ']'."),
        ("pgd:steps=1]", "']' closes nothing; lists are [a, b], specs inside a spec (…)."),
        ("t:attack=(pgd:steps=[1)", "')' closes nothing"),
    ],
)
def test_split_names_a_bracket_without_its_other_half(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        spec.split(text)
    assert said in str(caught.value)


def test_items_of_lists_and_of_the_signs_they_had_before() -> None:
    assert spec.items("[(r:w=1,b=[1, 1]), vgg-16]") == ["r:w=1,b=[1, 1]", "vgg-16"]
    assert spec.items("[]") == []
    assert spec.items("cat|dog", older=r"\|") == spec.items("[cat, dog]", older=r"\|") == ["cat", "dog"]
    assert spec.nested("pgd:steps=2;step=0.1") == spec.nested("pgd:steps=2,step=0.1") == "pgd:steps=2,step=0.1"


@pytest.mark.parametrize("value", [(1, 2), 0.1, True, None, "a,b", ("a", "b:c=1,d=2"), (0.5, 1 / 3), "plain"])
def test_written_is_read_back(value: Any) -> None:
    (read,) = spec.split(f"x:key={spec.written(value)}")[1].values()
    if isinstance(value, tuple):
        assert spec.convert(read, tuple[type(value[0]), ...], "key") == value  # type: ignore[misc]
    else:
        assert read == (value if isinstance(value, str) else spec.written(value))


def test_specs_are_the_same_whatever_signs_their_lists_have() -> None:
    assert run_config.same("step:milestones=75-90,factor=0.1", "step:milestones=[75, 90],factor=0.1")
    assert run_config.same(
        "replaced:of=digits:per_class=5;exclude=0|1", "replaced:of=(digits:per_class=5,exclude=[0, 1])"
    )
    assert not run_config.same("step:milestones=75-90", "step:milestones=[75, 91]")
    assert not run_config.same("runs/a-b", "runs/a|b")
    assert not run_config.same("a:b=[1", "a:b=1")


def test_split_refuses_a_key_given_twice() -> None:
    with pytest.raises(UserError, match=r"in 'pgd:steps=1,steps=2': steps is given twice"):
        spec.split("pgd:steps=1,steps=2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pgd-20", ("pgd", "20")),
        ("margin-pgd-20", ("margin-pgd", "20")),
        ("wideresnet-28-10", ("wideresnet", "28-10")),
        ("pgd", ("pgd", None)),
        ("margin-pgd", ("margin-pgd", None)),
        ("stl10", ("stl10", None)),
    ],
)
def test_leading(text: str, expected: tuple[str, str | None]) -> None:
    assert spec.leading(text) == expected


@pytest.mark.parametrize(
    ("field", "written", "value"),
    [
        ("steps", "20", 20),
        ("steps", "1e2", 100),
        ("steps", 20.0, 20),
        ("steps", 2**60 + 1, 2**60 + 1),
        ("step", "2/255", 2 / 255),
        ("step", "none", None),
        ("step", "", None),
        ("step", None, None),
        ("start", "none", "none"),
        ("start", "gaussian", "gaussian"),
        ("clamp", "no", False),
        ("clamp", "TRUE", True),
        ("clamp", "0", False),
        ("clamp", False, False),
        ("target", "3", 3),
        ("target", "random", "random"),
        ("target", "none", None),
        ("blocks", "3-4-6-3", (3, 4, 6, 3)),
        ("blocks", "5", (5,)),
        ("blocks", "[3, 4, 6]", (3, 4, 6)),
        ("blocks", "[]", ()),
        ("scales", "[1/2, 1e-3]", (0.5, 0.001)),
        ("blocks", [2, 2], (2, 2)),
        ("blocks", 7, (7,)),
        ("scales", "1/2-1/4", (0.5, 0.25)),
        ("scales", "0.1;1e-3", (0.1, 0.001)),
        ("scales", "0.1-1e-3-2E-2", (0.1, 0.001, 0.02)),
        ("level", "2", 2),
        ("level", 3, 3),
        ("name", "42", "42"),
    ],
)
def test_values_take_the_type_of_their_field(field: str, written: Any, value: Any) -> None:
    for made in (configured(**{field: written}), Sample(**{field: written})):
        assert getattr(made, field) == value
        assert type(getattr(made, field)) is type(value)


@pytest.mark.parametrize(
    ("field", "written", "said"),
    [
        ("steps", "20.5", "steps must be a whole number, got '20.5'"),
        ("steps", "many", "steps must be a whole number, got 'many'"),
        ("steps", True, "steps must be a whole number, got True"),
        ("steps", None, "steps must be a whole number, got None"),
        ("step", "small", "step must be a number such as 8/255 or 0.031, got 'small'"),
        ("step", "inf", "step must be a number such as 8/255 or 0.031, got 'inf'"),
        ("start", "gausian", "start 'gausian'; did you mean 'gaussian'? Known: gaussian, none, uniform."),
        ("clamp", "maybe", "clamp must be true or false, got 'maybe'"),
        ("clamp", 1, "clamp must be true or false, got 1"),
        ("target", "rnadom", "target must be a whole number, got 'rnadom'."),
        ("target", "rnadom", "did you mean 'random'?"),
        ("blocks", "1-x", "blocks must be a whole number, got 'x'"),
        ("level", "4", "level '4'. Known: 1, 2, 3."),
    ],
)
def test_a_bad_value_is_named_with_its_field(field: str, written: Any, said: str) -> None:
    for make in (configured, Sample):
        with pytest.raises(UserError) as caught:
            make(**{field: written})
        assert said in str(caught.value)


def test_an_unknown_key_is_named_with_its_owner_and_the_near_miss() -> None:
    with pytest.raises(UserError, match=r"unknown setting of sample 'stpes'; did you mean 'steps'\?"):
        configured(stpes="3")


def test_fields_not_given_keep_their_defaults() -> None:
    assert configured() == Sample()
    assert configured(steps="5") == dataclasses.replace(Sample(), steps=5)


def test_usage_lists_the_arguments_with_their_defaults() -> None:
    def build(
        num_classes: int, width: int = 16, blocks: tuple[int, ...] = (1, 2), bias: bool = True, **rest: Any
    ) -> None:
        """Only its signature matters."""

    assert registry.usage(build) == "num_classes, width=16, blocks=[1, 2], bias=true"
    assert registry.usage(build, skip=("num_classes", "bias")) == "width=16, blocks=[1, 2]"
