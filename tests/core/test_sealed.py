"""A file of records that was changed on disk, by a bit, a cut or anything else, is never read as records."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.records import Records
from classwise.results.audit_result import Audit


@pytest.fixture
def written(audit_of: Callable[..., Audit], tmp_path: Path) -> tuple[Records, Path]:
    infos = {"pgd-20": AttackInfo(settings={"name": "pgd", "steps": 20, "step": 0.003})}
    records = audit_of({"pgd-20": [5, 2, 9]}, (10, 10, 10), infos=infos).records
    probs = np.random.default_rng(0).dirichlet(np.ones(3), len(records)).astype(np.float32)
    Records(records.frame, records.meta, probs).write(tmp_path / "part.parquet")
    return Records.read(tmp_path / "part.parquet"), tmp_path / "part.parquet"


def same(one: Records, other: Records) -> bool:
    assert one.probs is not None
    return one.meta == other.meta and one.frame.equals(other.frame) and np.array_equal(one.probs, other.probs)


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_or_changes_nothing(written: tuple[Records, Path]) -> None:
    whole, path = written
    content, chance, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(400):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        try:
            assert same(whole, Records.read(path)), (place, bit)
        except UserError as error:
            assert "repeat the audit's command" in str(error) or "not written by classwise" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 200


def test_a_file_cut_short_or_overwritten_is_noticed(written: tuple[Records, Path]) -> None:
    _, path = written
    content, chance = path.read_bytes(), random.Random(1)
    for _ in range(60):
        begin = chance.randrange(len(content))
        end = chance.randrange(begin, len(content)) + 1
        for damaged in (content[:begin], content[:begin] + chance.randbytes(end - begin) + content[end:]):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=r"cannot read records|was not written by classwise"):
                Records.read(path)


def test_changed_values_in_a_sound_file_are_noticed(written: tuple[Records, Path]) -> None:
    """As another program would write them: pages and checksums in order, the numbers not ours."""
    _, path = written
    table = pq.read_table(path)
    for column in ("prediction", "attack", "loss"):
        values = table.column(column).to_pylist()
        values[7] = {"prediction": 2, "attack": "pgd-2", "loss": 0.5}[column]
        place = table.column_names.index(column)
        changed = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
        pq.write_table(changed, path)
        with pytest.raises(UserError, match="its content is not what was written"):
            Records.read(path)


def test_a_file_of_a_later_format_says_so(written: tuple[Records, Path]) -> None:
    _, path = written
    table = pq.read_table(path)
    later = {**table.schema.metadata, b"classwise": b'{"format": 9}'}
    pq.write_table(table.replace_schema_metadata(later), path)
    with pytest.raises(UserError, match="a newer classwise may have written it"):
        Records.read(path)
