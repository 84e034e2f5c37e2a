"""What a large file or folder holds, remembered in the user's cache folder until it changes.

On a network file system a million names take minutes to list. Size and time of change say whether a file is still what
it was; of a folder the times of all folders below it do, since each changes whenever an entry comes or goes. What has
changed within the last seconds is not remembered: the next change might bear the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pooch

from classwise.core.storage import atomic_write_text

_LARGE = 1000  # entries from which remembering pays
_RECENT = 3_000_000_000  # nanoseconds


def of_file(path: Path, what: str, make: Callable[[], list[Any]]) -> list[Any]:
    """What `make` finds in a file, or found before: a list of plain values. what: the kind of finding."""
    state = path.stat()
    mark = {"size": state.st_size, "time": state.st_mtime_ns}
    kept = _read(path, what)
    if kept is not None and kept[0] == mark:
        return kept[1]
    found = make()
    _write(path, what, mark, found, state.st_mtime_ns)
    return found


def files_below(folder: Path, endings: Collection[str]) -> list[str]:
    """The files in a folder and below it with one of these endings, in any case, sorted; hidden ones are skipped."""
    what = f"files {' '.join(endings)}"
    kept = _read(folder, what)
    if kept is not None and all(_time(name) == changed for name, changed in kept[0].items()):
        return kept[1]
    times: dict[str, int] = {}
    found: list[Path] = []
    for where, _, files in os.walk(folder):
        times[where] = _time(where)
        found += (Path(where, file) for file in files if not file.startswith("."))
    texts = [str(path) for path in sorted(found) if path.suffix.lower() in endings]
    _write(folder, what, times, texts, max(times.values(), default=0))
    return texts


def _time(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


def _place(path: Path, what: str) -> Path:
    name = hashlib.sha256(f"{path.resolve()}\n{path}\n{what}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return Path(pooch.os_cache("classwise")) / "listings" / f"{name}.json"


def _read(path: Path, what: str) -> tuple[Any, list[Any]] | None:
    try:
        kept = json.loads(_place(path, what).read_text(encoding="utf-8"))
        return kept["mark"], kept["found"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, what: str, mark: Any, found: list[Any], changed: int) -> None:
    if len(found) >= _LARGE and time.time_ns() - changed > _RECENT:
        with contextlib.suppress(OSError, UnicodeEncodeError):  # a cache that cannot be written is done without
            atomic_write_text(_place(path, what), json.dumps({"mark": mark, "found": found}))
