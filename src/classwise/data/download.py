"""Data files on disk: where they are, fetched when asked for, and the errors for missing and damaged ones.

A download is checked against its published checksum before it gets its name, and an archive is unpacked beside its
destination and moved there when whole, so an interrupted fetch never leaves half a data set behind.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from classwise.core.errors import UserError

_CHUNK = 1 << 16  # pooch's own 1 KiB makes Python, not the network, the bottleneck
_ARCHIVES = (".tar", ".tar.gz", ".zip")


@dataclass(frozen=True)
class Remote:
    """A file on the web and its checksum, written as pooch takes it: ``md5:…``."""

    url: str
    checksum: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def locate(name: str, candidates: Sequence[Path], remote: Remote, into: Path, download: bool) -> Path:
    """The first of `candidates` that exists, after fetching `remote` into the folder `into` if none does."""
    found = next(filter(Path.is_file, candidates), None)
    if found is None and download:
        fetch(remote, into)
        found = next(filter(Path.is_file, candidates), None)
        if found is None:
            raise UserError(f"{remote.url} was fetched into {into} but holds no {candidates[0].name}.")
    if found is None:
        raise UserError(
            f"{name}: there is no {candidates[0]}. Pass download=True (--download) to fetch it, or give the root that "
            "holds it."
        )
    return found


def fetch(remote: Remote, into: Path) -> None:
    """Download `remote` into a folder, check it, and unpack it there if it is an archive."""
    try:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
            bar = _Bar(progress, progress.add_task(remote.file_name, total=None))
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK)
            path = pooch.retrieve(remote.url, remote.checksum, remote.file_name, into, downloader=downloader)
    except OSError as error:  # what requests raises is an OSError too
        raise UserError(
            f"could not download {remote.url}: {error}. Nothing was kept. Check the connection and try again, "
            f"or put the file at {into / remote.file_name} yourself."
        ) from error
    except ValueError as error:
        raise UserError(
            f"{remote.url} is not the expected file: its checksum is not {remote.checksum}. Nothing was kept. "
            f"Try again; if it stays so, put the right file at {into / remote.file_name} yourself."
        ) from error
    if remote.file_name.endswith(_ARCHIVES):
        _unpack(Path(path), into)


def damaged(path: Path, why: object) -> UserError:
    """The error for a data file that cannot be what it should be."""
    reason = str(why).rstrip(".")
    return UserError(f"{path} is damaged: {reason}. Delete it and download it again with download=True (--download).")


def _unpack(archive: Path, into: Path) -> None:
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as staging:
        try:
            # The first patch releases of Python 3.10 and 3.11 have no filter; the checksum protects instead.
            filtered = archive.suffix != ".zip" and hasattr(tarfile, "data_filter")
            safe: dict[str, Any] = {"filter": "data"} if filtered else {}
            shutil.unpack_archive(archive, staging, **safe)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
            raise UserError(f"could not unpack {archive} into {into}: {error}. Check the free space there.") from error
        for path in sorted(Path(staging).rglob("*")):
            if path.is_file():
                target = into / path.relative_to(staging)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)


@dataclass
class _Bar:
    """The part of a progress bar that pooch calls (total, update, reset, close), drawn by rich."""

    progress: Progress
    task: TaskID

    @property
    def total(self) -> float | None:
        return self.progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self.progress.update(self.task, total=size or None)  # 0 is a server that does not say

    def update(self, size: int) -> None:
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        self.progress.refresh()
