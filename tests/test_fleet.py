"""The simulation of many workers, against what can be worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.fleet import Fleet, Handing, part_costs, simulate

WAYS: tuple[Handing, ...] = ("queue", "shards")


@pytest.mark.parametrize("handing", WAYS)
def test_equal_parts_without_trouble(handing: Handing) -> None:
    found = simulate([10.0] * 12, Fleet(workers=4, startup=5), handing)
    assert (found.wall, found.busy, found.deaths) == (5 + 3 * 10, 120, 0)
    assert found.efficiency == pytest.approx(120 / (4 * 35))


def test_a_queue_evens_out_what_shards_cannot() -> None:
    parts = [30.0, 10.0, 30.0, 10.0, 10.0, 10.0]  # worker 0 of 2 has the shard 30, 30, 10
    assert simulate(parts, Fleet(workers=2), "shards").wall == 70
    assert simulate(parts, Fleet(workers=2), "queue").wall == 50


@pytest.mark.parametrize("handing", WAYS)
@pytest.mark.parametrize("lost", [0.0, 0.5, 1.0])
def test_every_part_is_done_once_whoever_dies(handing: Handing, lost: float) -> None:
    fleet = Fleet(workers=5, startup=1, lifetime=30, restart=3, lost=lost)
    for seed in range(20):
        found = simulate([7.0] * 40, fleet, handing, seed)
        assert found.busy == pytest.approx(280)
        assert found.wall >= 1 + 8 * 7
        assert found.held >= found.busy


def test_a_slow_worker_holds_up_its_shard_but_not_the_queue() -> None:
    fleet = Fleet(workers=10, slow=0.1, slower=4)
    walls = {way: np.mean([simulate([1.0] * 200, fleet, way, seed).wall for seed in range(50)]) for way in WAYS}
    assert walls["queue"] < 0.6 * walls["shards"]


def test_small_batches_are_slow() -> None:
    per_image = np.array([100.0] * 32 + [1.0] * 32)
    whole, halves = (part_costs(per_image, size, rate=100, half=16, overhead=2) for size in (64, 32))
    assert whole.tolist() == pytest.approx([2 + 3232 / (100 * 32 / 48)])
    assert halves.tolist() == pytest.approx([2 + 1616 / (100 * 16 / 32)] * 2)
