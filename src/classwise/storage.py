"""Files that are there whole or not at all, and names that may be names of files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete: written beside, synced, renamed."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):  # the parent may be no folder at all; what was raised says so
            partial.unlink(missing_ok=True)


def safe_name(name: str) -> str:
    """The name of an attack as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)
