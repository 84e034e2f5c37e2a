"""A share of a run: as it is written, and as launchers say it."""

from __future__ import annotations

import pytest

from classwise.core.errors import UserError
from classwise.core.shard import Shard, local_rank


def array(task: int, count: int, **more: int) -> dict[str, str]:
    named = {"ID": task, "COUNT": count, **more}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in named.items()}


def test_every_part_is_of_one_share() -> None:
    shards = [Shard(number, 3) for number in (1, 2, 3)]
    assert [[part for part in range(8) if shard.has(part)] for shard in shards] == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize("text", ["", "2", "0/4", "5/4", "1/0", "a/b", "1/4/2", "-1/4"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UserError, match="shard"):
        Shard.parse(text)
    assert Shard.parse(" 2/ 4") == Shard(2, 4)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "0", "WORLD_SIZE": "4"}, "1/4"),
        ({"RANK": "3", "WORLD_SIZE": "4"}, "4/4"),
        (array(0, 1), None),
        (array(7, 4, MIN=5, MAX=8), "3/4"),
        (array(20, 3, MIN=0, MAX=20, STEP=10), "3/3"),
        ({"RANK": "1", "WORLD_SIZE": "2", **array(3, 4, MIN=0)}, "2/2"),
    ],
)
def test_torchrun_and_slurm_arrays(environment: dict[str, str], expected: str | None) -> None:
    found = Shard.of_environment(environment)
    assert (None if found is None else str(found)) == expected


def test_an_array_with_gaps_needs_to_say_its_shares() -> None:
    with pytest.raises(UserError, match="not one of 3 evenly spaced numbers from 1: use --array=1-3, or say --shard"):
        Shard.of_environment(array(7, 3, MIN=1, MAX=7))


def test_the_number_on_a_host() -> None:
    assert local_rank({}) is None
    assert local_rank({"SLURM_LOCALID": "1"}) == 1
    assert local_rank({"LOCAL_RANK": "2", "SLURM_LOCALID": "1"}) == 2
