"""Run folders on any file system that fsspec knows: s3://bucket/run, gs://…, memory://….

The run itself is in a local folder (below CLASSWISE_CACHE, by default ~/.cache/classwise), which begins as a copy of
what is there and whose files are copied back as they appear: a finished part is safe after a few seconds. Object
stores have no locks, so that a folder in use is noticed on one machine only; what counts is created once (config.toml),
or is the same whoever writes it (parts, summary).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)")  # of a Path one slash is left
_CONFIG = "config.toml"
_EVERY = 2.0  # seconds between two looks for new files
_mirrors: dict[Path, Mirror] = {}


def url_of(folder: str | Path | None) -> str | None:
    """The URL that a run folder is given by; None of a path of this machine."""
    match = None if folder is None else _URL.fullmatch(str(folder))
    if match is None:
        return None
    root = "/" if match["scheme"] in ("file", "local") else ""  # paths of this machine
    return f"{match['scheme']}://{root}{match['rest'].rstrip('/')}"


@dataclass(frozen=True)
class Mirror:
    """A run folder elsewhere and its copy here."""

    url: str
    path: Path
    fs: Any
    root: str
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, url: str) -> Mirror:
        """With the files that are there copied here, if they are not yet."""
        cache = Path(os.environ.get("CLASSWISE_CACHE", Path.home() / ".cache" / "classwise"))
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UserError(f"cannot use {url} as a run folder: {error}") from error
        path = cache / "runs" / hashlib.sha256(url.encode()).hexdigest()[:16]
        return _mirrors.setdefault(path, cls(url, path, fs, root.rstrip("/")))

    def pull(self) -> None:
        """Copy what is there and not here. What is only here is kept if it is of the same run: a copy had failed."""
        with self._reported("read"):
            found = self.fs.find(self.root, detail=True) if self.fs.exists(self.root) else {}
        sizes = {name[len(self.root) :].lstrip("/"): about["size"] for name, about in found.items()}
        for path in [] if self._same_run(sizes) else [*self._files()]:
            path.unlink()
        for name, size in sizes.items():
            path = self.path / name
            if not path.is_file() or path.stat().st_size != size or name not in self.sent:
                with self._reported("read"), atomic_write(path) as handle:
                    handle.write(self.fs.cat_file(f"{self.root}/{name}"))
                self.sent[name] = _stamp(path)

    def _same_run(self, names: Container[str]) -> bool:
        """Whether what is here has the config of what is there."""
        config = self.path / _CONFIG
        if not config.is_file() or _CONFIG not in names:
            return False
        with self._reported("read"):
            return bool(self.fs.cat_file(f"{self.root}/{_CONFIG}") == config.read_bytes())

    def push(self) -> None:
        """Copy the files that are new or have changed; config.toml is of whoever was first."""
        for path in sorted(self._files()):
            name = str(path.relative_to(self.path))
            with contextlib.suppress(FileNotFoundError):  # replaced meanwhile: the next time
                stamp = _stamp(path)
                if self.sent.get(name) != stamp:
                    with self._reported("write"):
                        self.fs.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
                        self.fs.pipe_file(f"{self.root}/{name}", path.read_bytes())
                    self.sent[name] = stamp

    def create_once(self, path: Path) -> None:
        """Copy a file, unless another machine was first: then theirs is copied here."""
        name = str(path.relative_to(self.path))
        there = f"{self.root}/{name}"
        with self._reported("write"):
            self.fs.makedirs(self.root, exist_ok=True)
            try:
                self.fs.pipe_file(there, path.read_bytes(), mode="create")
            except FileExistsError:
                with atomic_write(path) as handle:
                    handle.write(self.fs.cat_file(there))
        self.sent[name] = _stamp(path)

    def _files(self) -> Iterator[Path]:
        """What is kept: neither locks nor what is just being written."""
        return (path for path in self.path.rglob("*") if path.is_file() and not path.name.startswith("."))

    @contextlib.contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # every file system has errors of its own
            raise UserError(f"cannot {what} {self.url}: {type(error).__name__}: {error}") from error


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def mirror_of(folder: Path) -> Mirror | None:
    """The mirror whose copy this folder is."""
    return _mirrors.get(folder)


def local_copy(folder: str | Path) -> Path:
    """The folder, or the copy here of one that is given by a URL."""
    if (url := url_of(folder)) is None:
        return Path(folder)
    mirror = Mirror.of(url)
    mirror.pull()
    return mirror.path


@contextlib.contextmanager
def mirrored(folder: str | Path | None) -> Iterator[Path | None]:
    """The folder to work in; of one that is given by a URL the copy here, whose files are copied there meanwhile."""
    if (url := url_of(folder)) is None:
        yield None if folder is None else Path(folder)
        return
    path = local_copy(url)
    mirror, stop = _mirrors[path], threading.Event()

    def work() -> None:
        while not stop.wait(_EVERY):
            with contextlib.suppress(UserError):  # said at the end, if it still fails
                mirror.push()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        stop.set()
        thread.join()
        mirror.push()
