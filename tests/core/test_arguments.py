"""Arguments of public functions, checked by their annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from classwise.core.arguments import argument, checked
from classwise.core.errors import UserError
from classwise.core.spec import Count


@checked
def function(
    anything: Any,
    count: Count | None = None,
    share: float = 0.5,
    flag: bool | None = None,
    kind: Literal["a", "b"] = "a",
    out: str | Path | None = None,
    names: Sequence[str | int] | None = None,
    radius: float | str | Mapping[str, float | str] = 0.1,
) -> dict[str, Any]:
    """What it is about."""
    return dict(locals())


class TestValues:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"count": np.int64(3)}, 3),
            ({"count": torch.tensor(3)}, 3),
            ({"count": 3.0}, 3),
            ({"count": "3"}, 3),
            ({"count": None}, None),
            ({"share": 1}, 1.0),
            ({"share": "1/4"}, 0.25),
            ({"flag": True}, True),
            ({"flag": np.bool_(False)}, False),
            ({"out": Path("a")}, Path("a")),
            ({"out": "a"}, "a"),
            ({"names": ["cat", 3]}, ["cat", 3]),
            ({"names": ("cat",)}, ("cat",)),
            ({"radius": "8/255"}, "8/255"),
            ({"radius": {"cat": "4/255"}}, {"cat": "4/255"}),
        ],
    )
    def test_what_fits_arrives(self, given: dict[str, Any], expected: Any) -> None:
        ((name, _),) = given.items()
        assert function(object(), **given)[name] == expected

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"count": "many"}, "count must be a whole number, got 'many'"),
            ({"count": 2.5}, "count must be a whole number"),
            ({"count": True}, "count must be a whole number"),
            ({"count": 0}, "count must be at least 1, got 0"),
            ({"count": np.array([1, 2])}, "count must be a whole number"),
            ({"share": 1j}, "share must be a number"),
            ({"share": float("nan")}, "share must be a number"),
            ({"flag": 1}, "flag must be true or false"),
            ({"kind": "c"}, "unknown kind 'c'"),
            ({"out": 5}, "out must be text or a path, got 5"),
            ({"out": "a" * 300}, "out is no path that a file can have: 'aaa"),
            ({"out": "a\0b"}, "out is no path that a file can have"),
            ({"names": 5}, "names must be a sequence, got 5"),
            ({"names": np.array("cat")}, "names must be a sequence"),
            ({"names": "cat"}, "names must be a sequence, got 'cat'"),
            ({"names": b"cat"}, "names must be a sequence"),
            ({"names": [None]}, r"names\[0\] must be text or a whole number, got None"),
            ({"radius": {"cat": None}}, r"radius\['cat'\]"),
            ({"radius": 1j}, "radius must be a number such as 8/255 or 0.031, text or a mapping, got 1j"),
            ({"radius": {1: 2}}, "a key of radius must be text, got 1"),
            ({"counts": 3}, "unknown argument of function 'counts'; did you mean 'count'"),
        ],
    )
    def test_what_does_not_is_named(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            function(object(), **given)

    def test_a_missing_argument_is_also_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="missing a required argument: 'anything'"):
            function()  # type: ignore[call-arg]

    def test_iterators_are_left_alone(self) -> None:
        items = iter(["a"])
        assert argument(items, Iterable[str], "items") is items


def test_the_function_keeps_its_name_and_documentation() -> None:
    assert (function.__name__, function.__doc__) == ("function", "What it is about.")
