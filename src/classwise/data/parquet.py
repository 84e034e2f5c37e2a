"""Parquet: images inside Parquet or Arrow files, as the Hugging Face hub and `datasets` store them; read row by row.

Reads ``root/{split}-*.parquet``, ``root/data/{split}-*.parquet``, ``root/{split}/*.parquet``, and ``*.arrow`` files of
``datasets.save_to_disk``. An image is a column of encoded bytes, by itself or in a struct as `datasets` writes it; a
label is a number, whose names the file's own metadata may give, or text. Labels are read when the data set is opened,
images when a batch asks for them, a row group at a time.

`image`, `label`: the columns, if they are not called image (img, jpg, png) and label (labels, fine_label, class, cls).
`names`: a file with the names of the classes. `resize`, `crop`, `channels`, `fit`: as for `folder`.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from classwise.core.errors import UserError, unknown
from classwise.data.decoding import Decoder, Encoded, Fit
from classwise.data.images import Images, IntArray
from classwise.data.shards import checked_images, numbered, shard_files

PAPERS = ()  # ours, or common knowledge
_IMAGE = ("image", "img", "jpg", "png", "webp", "pixels")
_LABEL = ("label", "labels", "fine_label", "class", "cls", "target", "y")
_KEPT = 4  # groups of rows in memory
_ONE_AT_A_TIME = threading.Lock()


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    image: str | None = None,
    label: str | None = None,
    names: str | None = None,
    resize: int | None = None,
    crop: int | None = None,
    channels: int = 3,
    fit: Fit = "crop",
) -> Images:
    """The images of a split. There is nothing to download."""
    files = [_opened(path) for path in shard_files(root, split, (".parquet", ".arrow"), "parquet")]
    schema = files[0].schema
    pixels_in = _column(image, _IMAGE, schema, files[0].path, "image")
    label_in = _column(label, _LABEL, schema, files[0].path, "label")
    values = [value for file in files for value in file.column(label_in)]
    if any(value is None for value in values):
        raise UserError(f"parquet: {values.count(None):,} of {len(values):,} rows of {split} have no {label_in}.")
    class_names, labels = numbered(values, _declared(schema, label_in), root, names, "parquet")
    pixels = TablePixels(tuple(files), pixels_in, Decoder.square(resize, crop, channels, fit))
    return checked_images(pixels, labels, class_names, root)


@dataclass(frozen=True)
class TableFile:
    """A file of rows in groups. sizes: the rows of each group."""

    path: Path
    schema: pa.Schema
    sizes: tuple[int, ...]

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        return [value for group in range(len(self.sizes)) for value in self.group(group, name).to_pylist()]

    def group(self, number: int, name: str) -> Any:
        """A column of one group of rows."""
        if self.path.suffix == ".parquet":
            return pq.ParquetFile(self.path, memory_map=True).read_row_group(number, columns=[name]).column(name)
        return _batches(self.path)[number].column(name)


@dataclass(frozen=True)
class TablePixels:
    """The images of such files, one after the other."""

    files: tuple[TableFile, ...]
    column: str
    decoder: Decoder

    @functools.cached_property
    def groups(self) -> list[tuple[TableFile, int]]:
        return [(file, number) for file in self.files for number in range(len(file.sizes))]

    @functools.cached_property
    def ends(self) -> IntArray:
        """The number of rows up to the end of each group."""
        return np.cumsum([size for file in self.files for size in file.sizes], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, rows: IntArray) -> Tensor:
        return self.decoder.read(rows, self.encoded)

    def encoded(self, row: int) -> Encoded:
        number = int(np.searchsorted(self.ends, row, side="right"))
        begin = int(self.ends[number - 1]) if number else 0
        file, group = self.groups[number]
        with _ONE_AT_A_TIME:  # decoding is done by several threads, which would all read the same group
            value = _group(file, group, self.column)[row - begin].as_py()
        name = f"row {row - begin} of group {group} of {file.path}"
        if isinstance(value, Mapping):
            value = value.get("bytes") or _beside(file.path, value.get("path"), name)
        if isinstance(value, str):
            return Encoded(value, value)
        if not isinstance(value, bytes):
            raise UserError(f"{name}: {self.column} is no encoded image but {type(value).__name__}.")
        return Encoded(name, value)


@functools.lru_cache(_KEPT)
def _group(file: TableFile, group: int, column: str) -> Any:
    return file.group(group, column)


@functools.lru_cache(_KEPT)
def _batches(path: Path) -> list[pa.RecordBatch]:
    """The batches of an Arrow file, mapped into memory; `datasets` writes streams."""
    source = pa.memory_map(str(path))
    try:
        reader = pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        reader = pa.ipc.open_file(source)
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return list(reader)


def _opened(path: Path) -> TableFile:
    try:
        if path.suffix == ".parquet":
            about = pq.ParquetFile(path)
            sizes = (about.metadata.row_group(number).num_rows for number in range(about.metadata.num_row_groups))
            return TableFile(path, about.schema_arrow, tuple(sizes))
        batches = _batches(path)
        if not batches:
            raise UserError(f"parquet: {path} has no rows.")
        return TableFile(path, batches[0].schema, tuple(len(batch) for batch in batches))
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"parquet: cannot read {path} ({error}); it may be cut short: fetch it again.") from error


def _column(wanted: str | None, usual: Sequence[str], schema: pa.Schema, path: Path, what: str) -> str:
    if wanted is not None:
        if wanted not in schema.names:
            raise unknown(f"column of {path}", wanted, schema.names)
        return wanted
    for name in usual:
        if name in schema.names:
            return name
    raise UserError(f"parquet: which column is the {what}? {path} has {', '.join(schema.names)}; give {what}=COLUMN.")


def _declared(schema: pa.Schema, label: str) -> list[str] | None:
    """The names of the classes that `datasets` stores beside the columns, if it wrote the file."""
    stored = (schema.metadata or {}).get(b"huggingface")
    if stored is None:
        return None
    try:
        names = json.loads(stored)["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _beside(file: Path, path: str | None, name: str) -> str:
    """The image that a row names instead of holding it."""
    for candidate in () if path is None else (Path(path), file.parent / path):
        if candidate.is_file():
            return str(candidate)
    raise UserError(f"{name} holds no image, and there is no file {path!r} either.")
