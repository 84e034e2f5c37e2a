"""A simulation of an audit's parts on many workers: stragglers, preemption and workers that never come back.

Two ways of handing out parts, as `--engine` has them:

    queue     a worker takes the next part that nobody has; what a dead worker held goes back to the queue (Ray)
    shards    worker k of n has the parts k, k + n, …; after a death it starts again, at the part it was in (SLURM)

A worker begins with its start-up time, needs part_i · speed seconds for a part, and dies after exponentially
distributed times; what it had done of its part is lost. It is back after `restart` seconds, or never.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Handing = Literal["queue", "shards"]
_FOREVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """workers: how many. startup: seconds from the start of a process to its first attack. slow: the share of workers
    that need `slower` times as long. lifetime: mean seconds until a worker dies. restart: seconds until it is back.
    lost: the share of deaths after which it is not."""

    workers: int
    startup: float = 0.0
    slow: float = 0.0
    slower: float = 2.0
    lifetime: float = _FOREVER
    restart: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """wall: seconds until the last part is done. busy: seconds of all workers that went into parts that were finished.
    held: seconds paid for: of a cluster with a queue all workers until the end, of shards each until its own."""

    wall: float
    busy: float
    held: float
    deaths: int

    @property
    def efficiency(self) -> float:
        """The share of the time paid for that went into finished parts."""
        return self.busy / self.held


def simulate(parts: Sequence[float], fleet: Fleet, handing: Handing, seed: int = 0) -> Outcome:
    """Work through parts that take so many seconds each on a worker of normal speed.

    What nobody is left to do, the command once more does, with one worker.
    """
    random = np.random.default_rng([seed, fleet.workers])
    speed = np.where(random.random(fleet.workers) < fleet.slow, fleet.slower, 1.0)
    shared: deque[int] = deque(range(len(parts)))
    queues = [
        shared if handing == "queue" else deque(range(worker, len(parts), fleet.workers))
        for worker in range(fleet.workers)
    ]
    #: What happens when: a worker is free, or it dies in a part.
    events: list[tuple[float, int, int | None]] = [(fleet.startup, worker, None) for worker in range(fleet.workers)]
    idle: list[int] = []
    last, busy, deaths = np.zeros(fleet.workers), 0.0, 0
    while events:
        now, worker, died_in = heapq.heappop(events)
        last[worker] = now
        if died_in is not None:
            deaths += 1
            queues[worker].appendleft(died_in)
            if handing == "queue" and idle:
                heapq.heappush(events, (now, idle.pop(), None))
            if random.random() >= fleet.lost:
                heapq.heappush(events, (now + fleet.restart + fleet.startup, worker, None))
            continue
        if not queues[worker]:
            idle.append(worker)
            continue
        part = queues[worker].popleft()
        needed = parts[part] * float(speed[worker])
        life = random.exponential(fleet.lifetime) if np.isfinite(fleet.lifetime) else _FOREVER
        busy += needed if life >= needed else 0.0
        heapq.heappush(events, (now + min(life, needed), worker, None if life >= needed else part))
    wall, held = float(last.max()), float(last.sum()) if handing == "shards" else float(last.max() * fleet.workers)
    if left := sum(parts[part] for queue in {id(queue): queue for queue in queues}.values() for part in queue):
        wall, busy, held = wall + fleet.startup + left, busy + left, held + fleet.startup + left
    return Outcome(wall, busy, held, deaths)


def part_costs(
    per_image: npt.NDArray[np.float64], size: float, rate: float, half: float, overhead: float
) -> npt.NDArray[np.float64]:
    """Seconds of each part of `size` images, strided over all, from the forward passes that each image costs.

    rate: forward passes in a second with large batches; a batch of n goes at rate · n / (n + half). The images that a
    part is busy with are those that survive, so that is what n is. overhead: seconds of each part for everything else.
    """
    count = max(1, round(len(per_image) / size))
    found = []
    for part in range(count):
        own = per_image[part::count]
        alive = float(np.count_nonzero(own >= own.max() / 2))
        found.append(overhead + own.sum() / (rate * alive / (alive + half)))
    return np.array(found)
