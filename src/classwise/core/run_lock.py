"""One writer for each run folder: audit, search, training or study.

The operating system holds the lock (flock; msvcrt on Windows), so the lock of a process that died is free at once. On a
file system without locks it is a file that names its process, which is taken over when that process no longer runs on
this machine. ``.writer.json`` beside it says who writes: host, pid, since when.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import filelock

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write, sweep

LOCK, WRITER = ".lock", ".writer.json"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_PATIENCE = 0.2  # seconds to wait for a writer that is just finishing, or has not yet written who it is
_held = threading.local()


@dataclass(frozen=True)
class Writer:
    """A process that writes into a run folder."""

    host: str
    pid: int
    since: str

    @classmethod
    def this(cls) -> Writer:
        return cls(socket.gethostname(), os.getpid(), datetime.now().astimezone().isoformat(" ", "seconds"))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@contextlib.contextmanager
def writing(folder: str | Path | None, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a run folder, so that nobody else writes into it; another writer is an error that names it.

    wait: wait for the other writer instead. The folder is created if need be, and removed if it is left empty. A thread
    that holds the lock already continues at once; None is no folder and needs no lock.
    """
    if folder is None:
        yield
        return
    if not str(folder):
        raise UserError("the run folder (out, --out) is empty; give the path of a folder.")
    key = Path(folder).resolve()
    held: set[Path] = _held.__dict__.setdefault("folders", set())
    if key in held:
        yield
        return
    made = not key.exists()
    lock = _acquire(Path(folder), wait)
    held.add(key)
    try:
        for below in (key, *(path for path in key.iterdir() if path.is_dir())):
            sweep(below)  # nobody else writes here: partial files are of a process that was killed
        with contextlib.suppress(OSError), atomic_write(key / WRITER) as handle:  # the run itself reports a full disk
            handle.write(json.dumps(asdict(Writer.this())).encode())
        yield
    finally:
        held.discard(key)
        with contextlib.suppress(OSError):  # while it is held: who waits for the old file finds it unlinked
            (key / WRITER).unlink(missing_ok=True)
            (key / LOCK).unlink(missing_ok=True)
            if made:
                key.rmdir()
        lock.release()


def _acquire(folder: Path, wait: bool) -> filelock.BaseFileLock:
    timeout = -1 if wait else _PATIENCE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return _lock(folder / LOCK, timeout)
        except filelock.Timeout:
            raise _busy(folder) from None
        except FileNotFoundError:  # another process has removed the folder that it had made and left empty
            continue
        except OSError as error:
            if folder.exists() and not folder.is_dir():
                raise UserError(f"{folder} is a file; --out must be a folder.") from error
            raise UserError(f"cannot use {folder} as a run folder: {error.strerror or error}.") from error


def _lock(path: Path, timeout: float) -> filelock.BaseFileLock:
    lock: filelock.BaseFileLock = filelock.FileLock(path, timeout)
    try:
        lock.acquire()
    except OSError as error:
        if isinstance(error, filelock.Timeout) or error.errno not in _NO_LOCKS:
            raise
        lock = filelock.SoftFileLock(path, timeout)
        lock.acquire()
    return lock


def _busy(folder: Path) -> UserError:
    writer = _writer(folder)
    gone = ""
    if writer is None or writer.host != socket.gethostname():
        gone = f" If that process is gone, delete {folder / LOCK} and start again."
    return UserError(
        f"{folder} is being written by {writer or 'another process'}. Wait until it has finished, stop it, or choose "
        f"another --out.{gone}"
    )


def _writer(folder: Path) -> Writer | None:
    """The process that writes into the folder, if it has written who it is."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return Writer(**json.loads((folder / WRITER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            if time.monotonic() > end:
                return None
            time.sleep(0.01)
