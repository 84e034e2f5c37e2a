"""Python files of the user's: ``path/to/file.py:name`` is what the file calls `name`.

Such a file may import its neighbours, which are forgotten afterwards: two code bases may both have a `models`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from classwise.core.errors import UserError, unknown

#: How something in a file is named.
IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)")

_KEPT = "classwise_user_files"  # the modules below this name stay: annotations are looked up in them


def take(path: str, name: str, kind: str) -> tuple[Any, ModuleType]:
    """What a file calls `name`, and the file as a module. It is run once for as long as it does not change."""
    file = Path(path)
    module = _module(file.resolve(), _version(file, f"the {kind} {name!r}"))
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if not isinstance(value, ModuleType) and key[0] != "_"]
        raise unknown(f"{kind} in {file.name}", name, own)
    return getattr(module, name), module


def _version(path: Path, wanted: str) -> tuple[int, int]:
    if not path.is_file():
        raise UserError(f"no Python file {str(path)!r} to take {wanted} from.")
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.cache
def _module(path: Path, version: tuple[int, int]) -> ModuleType:
    digest = hashlib.sha256(f"{path}{version}".encode()).hexdigest()[:16]
    return run_file(path, "", f"{_KEPT}.{digest}.{path.stem}")


def run_file(path: Path, wanted: str, name: str | None = None) -> ModuleType:
    """The module that a Python file makes; `wanted` says what is to be taken from it."""
    _version(path, wanted)
    with importing_from(path.resolve().parent):
        try:
            return import_file(path, name)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(f"{path} failed: {type(error).__name__}: {error}") from error


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Let a file of the folder import its neighbours, and forget them after."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if _is_neighbour(name, folder):
                del sys.modules[name]


def _is_neighbour(name: str, folder: Path) -> bool:
    """Whether a module was found in the folder itself, not in an environment or a code base somewhere below it, whose
    modules stay: other files would import them a second time, and classes of the two would differ."""
    top = name.partition(".")[0]
    origin = getattr(sys.modules[name], "__file__", None)
    if not origin or top in (_KEPT, "classwise"):
        return False
    path = Path(origin).resolve()
    return folder in path.parents and Path(path.relative_to(folder).parts[0]).stem == top


def import_file(path: Path, name: str | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # dataclasses look their module up while it is being made
    spec.loader.exec_module(module)
    return module
