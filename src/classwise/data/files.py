"""Image files on disk, by position: found below folders, decoded when a batch asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from classwise.data.decoding import Decoder, Encoded
from classwise.data.images import IntArray
from classwise.data.listing_cache import files_below

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class FilePixels:
    """Image files by position."""

    paths: Sequence[str]
    decoder: Decoder = field(default_factory=Decoder)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: IntArray) -> Tensor:
        return self.decoder.read(rows, self._encoded)

    def check_sizes(self) -> None:
        self.decoder.check_sizes(len(self), self._encoded)

    def _encoded(self, row: int) -> Encoded:
        return Encoded(self.paths[row], self.paths[row])


def class_folders(folder: Path) -> list[str]:
    """The names of the sub-folders, sorted; hidden ones are skipped."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def image_files(folder: Path) -> list[str]:
    """The image files in a folder and below it, sorted."""
    return files_below(folder, EXTENSIONS)


def by_class(folder: Path) -> dict[str, list[str]]:
    """The image files below each sub-folder, sorted."""
    found: dict[str, list[str]] = {}
    for path in image_files(folder):
        parts = Path(path).relative_to(folder).parts
        if len(parts) > 1:
            found.setdefault(parts[0], []).append(path)
    return found


def labelled(folder: Path, classes: Iterable[str]) -> tuple[list[str], IntArray]:
    """The image files under ``folder/<class>`` for each class in turn, and the class number of each."""
    found = by_class(folder)
    members = [found.get(name, []) for name in classes]
    labels = np.repeat(np.arange(len(members)), [len(own) for own in members])
    return [path for own in members for path in own], labels.astype(np.int64)
