"""One writer for each run folder: audit, search, training or study.

The operating system holds the lock (flock; msvcrt on Windows), so the lock of a process that died is free at once. On a
file system without locks it is a file that names its process, which is taken over when that process no longer runs on
this machine. ``.writer.json`` beside it says who writes: host, pid, since when.

Several processes may each write a share of a run (`core.shard`): each holds the lock of its share for as long as it
runs, and that of the folder only for a moment at its beginning and end.
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
from classwise.core.shard import Shard
from classwise.core.storage import atomic_write, sweep

LOCK, WRITER = ".lock", ".writer.json"
SHARDS = ".shard-*.lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_PATIENCE = 0.2  # seconds to wait for a writer that is just finishing, or has not yet written who it is
_MOMENT = 600.0  # seconds to wait for shards that each hold the folder for a moment, such as to write the summary
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
    try:
        _refuse_shards(key, wait)
    except BaseException:
        lock.release()
        raise
    held.add(key)
    try:
        for below in (key, *(path for path in key.iterdir() if path.is_dir())):
            sweep(below)  # nobody else writes here: partial files are of a process that was killed
        _write_writer(key / WRITER)
        yield
    finally:
        held.discard(key)
        with contextlib.suppress(OSError):  # while it is held: who waits for the old file finds it unlinked
            (key / WRITER).unlink(missing_ok=True)
            (key / LOCK).unlink(missing_ok=True)
            if made:
                key.rmdir()
        lock.release()


@contextlib.contextmanager
def sharing(folder: str | Path, shard: Shard) -> Iterator[None]:
    """Hold a share of a run folder: meanwhile others may write other shares of as many, and nobody the whole.

    Who writes the same share already, or the whole folder, is named by an error.
    """
    own = Path(folder).resolve() / f".shard-{shard.number}-of-{shard.count}.lock"
    with moment(folder):
        for path in own.parent.glob(SHARDS):
            if path != own and not path.stem.endswith(f"-of-{shard.count}") and _is_held(path):
                raise _busy(own.parent, path, f" It is divided otherwise than into {shard.count} shards.")
        try:
            lock = _lock(own, _PATIENCE)
        except filelock.Timeout:
            raise _busy(own.parent, own, f" It is shard {shard}, too.") from None
        _write_writer(_writer_of(own))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _writer_of(own).unlink(missing_ok=True)
            own.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def moment(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a run folder that is shared, for what only one of the shards may do at a time; another shard
    that does so is waited for, whoever writes the whole folder is an error."""
    folder, end = Path(folder), time.monotonic() + _MOMENT
    while True:
        try:
            lock = _acquire(folder, wait=False)
            break
        except UserError:
            if _writer(folder) is not None or time.monotonic() > end:
                raise
    try:
        (folder / WRITER).unlink(missing_ok=True)  # of a process that was killed
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)
        lock.release()


def _refuse_shards(folder: Path, wait: bool) -> None:
    """An error if a shard of the run is being written; what killed ones left is removed."""
    for path in folder.glob(SHARDS):
        while _is_held(path):
            if not wait:
                raise _busy(folder, path, " It is one of several shards.")
            time.sleep(_PATIENCE)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            _writer_of(path).unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    try:
        _lock(path, 0).release()
    except filelock.Timeout:
        return True
    return False


def _writer_of(lock: Path) -> Path:
    """The file that says who holds a lock."""
    return lock.with_name(WRITER) if lock.name == LOCK else lock.with_suffix(".json")


def _write_writer(path: Path) -> None:
    with contextlib.suppress(OSError), atomic_write(path) as handle:  # the run itself reports a full disk
        handle.write(json.dumps(asdict(Writer.this())).encode())


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


def _busy(folder: Path, lock: Path | None = None, more: str = "") -> UserError:
    lock = folder / LOCK if lock is None else lock
    writer = _writer(folder, lock)
    gone = ""
    if writer is None or writer.host != socket.gethostname():
        gone = f" If that process is gone, delete {lock} and start again."
    return UserError(
        f"{folder} is being written by {writer or 'another process'}.{more} Wait until it has finished, stop it, or "
        f"choose another --out.{gone}"
    )


def _writer(folder: Path, lock: Path | None = None) -> Writer | None:
    """The process that writes into the folder, if it has written who it is."""
    path, end = _writer_of(folder / LOCK if lock is None else lock), time.monotonic() + _PATIENCE
    while True:
        try:
            return Writer(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            if time.monotonic() > end:
                return None
            time.sleep(0.01)
