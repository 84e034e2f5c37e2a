"""Whether files may run code: only if the user allows it.

A file that looks like data (a checkpoint, a .pt) may hold a program, or name a Python file to build its model with.
Loading either runs code, so it takes ``trust=True`` (``--trust``), or a spec that names the code itself:
``net.py:make`` or ``program:FILE``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from classwise.core.errors import UserError

_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Within this context files may run code if `trust` is true, or if they might before."""
    before = _TRUSTED.set(trust or _TRUSTED.get())
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def require_trust(what: str, instead: str) -> None:
    """Raise unless files may run code. `what` says what would be run, `instead` another way to allow it."""
    if not _TRUSTED.get():
        raise UserError(
            f"{what}, so it was not loaded. If you trust where it comes from, allow it with --trust (trust=True in "
            f"Python), or {instead}."
        )
