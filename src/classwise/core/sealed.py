"""One table in one Parquet file, sealed: a digest of every value and of the metadata, checked when it is read.

Parquet's own checksums cover the pages only; a bit that flips elsewhere can be read as other numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write

_FORMAT = 2  # 1, without a digest, has no such key
_META, _DIGEST = b"classwise", b"classwise.digest"


def write(path: Path, columns: Mapping[str, pa.Array], meta: str) -> None:
    """Store columns with metadata (a JSON object) atomically."""
    table = pa.table(dict(columns))
    text = json.dumps({"format": _FORMAT, **json.loads(meta)}).encode()
    table = table.replace_schema_metadata({_META: text, _DIGEST: _digest(table, text).encode()})
    with atomic_write(path) as handle:
        pq.write_table(table, handle, compression="zstd", write_page_checksum=True)


def read(path: Path) -> tuple[pa.Table, str, bool]:
    """The table, its metadata, and whether it was sealed; whatever is wrong with the file is one error."""
    try:
        content = pa.BufferReader(path.read_bytes())
        table = pq.ParquetFile(content, page_checksum_verification=True).read()
        found = table.schema.metadata or {}
        if _META in found:
            meta = json.loads(found[_META])
            version = meta.pop("format", 1)
            if version not in (1, _FORMAT):
                raise ValueError(f"format {version} is not known; a newer classwise may have written it")
            sealed = version == _FORMAT
            if sealed and found.get(_DIGEST, b"").decode() != _digest(table, found[_META]):
                raise ValueError("its content is not what was written")
            return table.replace_schema_metadata(None), json.dumps(meta), sealed
    except Exception as error:  # a damaged file makes Arrow raise anything
        raise unreadable(path, error) from error
    raise UserError(f"{path} was not written by classwise: it carries no metadata.")


def unreadable(path: Path, error: Exception) -> UserError:
    """An error for a file of records that is damaged."""
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return UserError(
        f"cannot read records {path}: {reason}. The file is damaged: repeat the audit's command, which computes it "
        "again and keeps the rest."
    )


def _digest(table: pa.Table, text: bytes) -> str:
    """SHA-256 of the metadata, and of every column's name, type and values."""
    whole = hashlib.sha256(text)
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.combine_chunks()
        if pa.types.is_fixed_size_list(values.type):
            values = values.flatten()
        whole.update(f"{name} {values.type} {len(column)}".encode())
        if pa.types.is_string(values.type):
            whole.update(json.dumps(values.to_pylist()).encode())
        else:
            whole.update(values.to_numpy(zero_copy_only=False).tobytes())
    return whole.hexdigest()
