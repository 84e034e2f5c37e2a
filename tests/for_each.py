"""One test for a check that is repeated for every recipe, metric, page and the like: it names all cases that fail."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, but all cases are one test; fixtures are shared between them.

    For cheap checks of many things of one kind. Cases that are behaviours of their own stay parametrised.
    """
    keys = (names,) if isinstance(names, str) else names
    listed = list(cases)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def loop(*args: Any, **fixtures: Any) -> None:
            assert listed, "there are no cases"
            failures = []
            for case in listed:
                values = (case,) if isinstance(names, str) else case
                try:
                    test(*args, **fixtures, **dict(zip(keys, values, strict=True)))
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{', '.join(map(str, values))}: {type(error).__name__}: {error}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(listed)} failed:\n" + "\n".join(failures), pytrace=False)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        loop.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest reads it
        return loop

    return decorate
