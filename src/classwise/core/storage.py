"""Atomic writes, so that a file is there complete or not at all; removing files, and naming them."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from classwise.core.errors import UserError

_PARTIAL = ".{name}.{token}.partial"  # hidden, beside the file, different for every writer
_LEFT_BEHIND = re.compile(r"\..+\.[0-9a-f]{8}\.partial")
_ABANDONED = 3600.0  # seconds after which a partial file is taken to be of a killed process
_LONGEST = 50  # letters of a file's name that its partial file repeats, so that no name becomes too long


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete: written beside, synced, renamed.

    A symlink's target is written, and an existing file keeps its permission bits. A device, a pipe or one of this
    process's descriptors (``/dev/stdout``) cannot be replaced: it is written directly.
    """
    if (direct := _open_directly(path)) is not None:
        with direct as handle:
            yield handle
        return
    path = Path(os.path.realpath(path))
    partial = path.with_name(_PARTIAL.format(name=path.name[:_LONGEST], token=secrets.token_hex(4)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_old(path.parent)
        with partial.open("xb") as handle:
            _keep_mode(path, partial)
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):  # the parent may not be a folder at all, which is raised already
            partial.unlink(missing_ok=True)


def _open_directly(path: Path) -> IO[bytes] | None:
    """A device, pipe or descriptor, opened for writing; None for a path that is a regular file or not there."""
    if (own := _descriptor(path)) is not None:
        for stream in (sys.stdout, sys.stderr):  # what was printed so far comes first
            stream.flush()
        return os.fdopen(os.dup(own), "wb")
    try:
        kind = path.stat().st_mode
    except OSError:
        return None
    if stat.S_ISREG(kind):
        return None
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    return path.open("wb")


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that a path such as ``/dev/stdout`` or ``/dev/fd/3`` stands for."""
    for _ in range(8):  # links to links; /dev/stdout is one to /proc/self/fd/1, which is one to the file behind it
        folder = os.path.realpath(path.parent)
        if folder in ("/dev/fd", f"/proc/{os.getpid()}/fd") and path.name.isdigit():
            return int(path.name)
        try:
            path = Path(folder, os.readlink(path))
        except OSError:
            return None
    return None


def _keep_mode(path: Path, partial: Path) -> None:
    """Give the partial file the owner and permission bits of the file it replaces, which must be writable."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):  # only root may give a file away
            os.chown(partial, before.st_uid, before.st_gid)
    partial.chmod(stat.S_IMODE(before.st_mode))


@functools.cache  # once per folder: a run writes thousands of files into one
def _sweep_old(folder: Path) -> None:
    sweep(folder, _ABANDONED)


def sweep(folder: Path, age: float = 0.0) -> None:
    """Remove the partial files that killed processes left in a folder, if they are older than `age` seconds."""
    before = time.time() - age
    with contextlib.suppress(OSError):  # the folder cannot be listed, or another process sweeps it too
        for path in folder.iterdir():
            if _LEFT_BEHIND.fullmatch(path.name) and path.lstat().st_mtime <= before:
                path.unlink(missing_ok=True)


def remove(folder: Path, patterns: tuple[str, ...]) -> None:
    """Remove the files of a folder that match, pattern by pattern, and the folders below it that this leaves empty."""
    for pattern in patterns:
        found = [path for path in folder.glob(pattern) if path.is_symlink() or not path.is_dir()]
        for path in found:
            path.unlink(missing_ok=True)
        for parent in {path.parent for path in found} - {folder}:
            with contextlib.suppress(OSError):
                parent.rmdir()


def safe_name(name: str) -> str:
    """The name of an attack as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    whole = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file atomically; failing is an error with the remedy."""
    try:
        with atomic_write(path) as handle:
            handle.write(text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}. Make room or choose another --out."
        ) from error
