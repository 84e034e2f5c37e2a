"""WebDataset: images in tar files, a sample being the members of one name; read in place, by their offsets.

Reads ``root/{split}-*.tar``, ``root/{split}/*.tar`` or, of a folder without splits, ``root/*.tar``. A sample
``0017.jpg``, ``0017.cls`` is an image and the number or the name of its class; `label` is the ending of the label's
member, or ``json.KEY`` for a value inside ``0017.json``. The headers of a tar file are read once and remembered in the
user's cache folder until the file changes. Compressed tar files cannot be read in place.

`names`: a file with the names of the classes. `resize`, `crop`, `channels`, `fit`: as for `folder`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from classwise.core.errors import UserError
from classwise.data import listing_cache
from classwise.data.decoding import Decoder, Encoded, Fit
from classwise.data.files import EXTENSIONS
from classwise.data.images import Images, IntArray
from classwise.data.shards import checked_images, numbered, shard_files

PAPERS = ()  # ours, or common knowledge


class Member(NamedTuple):
    """A sample's image inside a tar file, and its label."""

    name: str
    offset: int
    size: int
    label: int | str


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    label: str = "cls",
    names: str | None = None,
    resize: int | None = None,
    crop: int | None = None,
    channels: int = 3,
    fit: Fit = "crop",
) -> Images:
    """The images of a split. There is nothing to download."""
    paths = shard_files(root, split, (".tar",), "webdataset")
    found = [(path, Member(*member)) for path in paths for member in _members(path, label)]
    class_names, labels = numbered([member.label for _, member in found], None, root, names, "webdataset")
    pixels = TarPixels(
        tuple(str(path) for path, _ in found),
        tuple(member.name for _, member in found),
        np.array([(member.offset, member.size) for _, member in found]),
        Decoder.square(resize, crop, channels, fit),
    )
    return checked_images(pixels, labels, class_names, root)


@dataclass(frozen=True)
class TarPixels:
    """Members of tar files. places: where each begins in its file, and how long it is."""

    files: Sequence[str]
    names: Sequence[str]
    places: IntArray
    decoder: Decoder

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: IntArray) -> Tensor:
        return self.decoder.read(rows, self.encoded)

    def encoded(self, row: int) -> Encoded:
        offset, size = self.places[row].tolist()
        with open(self.files[row], "rb") as file:
            file.seek(offset)
            content = file.read(size)
        name = f"{self.names[row]} in {self.files[row]}"
        if len(content) != size:
            raise UserError(f"{name} is cut short: the tar file has changed since it was opened.")
        return Encoded(name, content)


def _members(path: Path, label: str) -> list[list[Any]]:
    """The samples of a tar file, remembered until it changes."""
    return listing_cache.of_file(path, f"webdataset {label}", lambda: [list(one) for one in _scan(path, label)])


def _scan(path: Path, label: str) -> list[Member]:
    ending, _, key = label.partition(".")
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int | str] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for info in archive:
                base, _, extension = PurePosixPath(info.name).name.partition(".")
                sample = str(PurePosixPath(info.name).with_name(base))
                if not info.isfile() or base == "":
                    continue
                if f".{extension.lower()}" in EXTENSIONS:
                    images[sample] = info
                elif extension == ending:
                    content = archive.extractfile(info)
                    assert content is not None  # it is a file
                    labels[sample] = _label(content.read(), key, f"{info.name} in {path}")
    except tarfile.TarError as error:
        raise UserError(
            f"webdataset: cannot read {path} ({error}). Compressed tar files cannot be read in place: unpack them to "
            ".tar first."
        ) from error
    if missing := [sample for sample in images if sample not in labels]:
        raise UserError(
            f"webdataset: {len(missing):,} of {len(images):,} images in {path} have no label, such as {missing[0]}: "
            f"there is no {missing[0]}.{ending}. Name the ending of the labels: webdataset:label=json.KEY."
        )
    return [Member(info.name, info.offset_data, info.size, labels[sample]) for sample, info in images.items()]


def _label(content: bytes, key: str, where: str) -> int | str:
    text = content.decode("utf-8", "replace").strip()
    if key:
        try:
            value = json.loads(text)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"webdataset: {where} has no {key}: {error!r}.") from error
        text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else text
