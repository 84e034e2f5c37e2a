"""What an audit of ImageNet costs on many GPUs: measured passes, assumed rates, simulated workers (`bench.fleet`).

    python -m bench.scale                                                      the tables of docs/scale.md
    python -m bench.scale --check --model best.pt --data cifar10 --root data   the simulation beside real processes

The passes of an image are those of AutoAttack's standard version; the shares of images that are misclassified, broken
and robust are those of a robust ResNet-50. The rates of GPUs are assumed: no GPU was at hand.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.fleet import Fleet, Handing, part_costs, simulate
from bench.markdown import percent, table
from bench.shards import measure
from classwise.stats import confidence_sequences

GPUS = (1, 8, 64, 512)
CLASSES, PER_CLASS = 1000, 50
CLEAN, ROBUST = 0.64, 0.35
#: Forward passes of AutoAttack for an image that it does not break, a gradient being two: APGD-CE, targeted APGD with 9
#: targets, targeted FAB, Square.
SURVIVOR = 202 + 1818 + 2700 + 5001
_BROKEN = 60  # of an image that APGD-CE breaks, on the way
_SEEDS = 20
_PART = 1024  # images of a part at most
_EACH: dict[Handing, int] = {"shards": 1, "queue": 4}  # parts for each worker at least


@dataclass(frozen=True)
class Network:
    """rate: forward passes in a second, half: the batch at half that rate; both assumed, of an A100 with TF32."""

    name: str
    rate: float
    half: float


NETWORKS = (Network("ResNet-50", 2400, 16), Network("ViT-B/16", 900, 8))
_STARTUP, _OVERHEAD = (
    60.0,
    2.0,
)  # seconds: import, weights and data; of a part: what is not attacking


def images(seed: int = 0) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Label, clean and robust of every image; the classes' robustness spreads as widely as is known of ImageNet."""
    random = np.random.default_rng(seed)
    robust = random.beta(1.3, 1.3 * (1 - ROBUST) / ROBUST, CLASSES)
    clean = np.clip(robust + (CLEAN - ROBUST) * (1 - robust) / (1 - ROBUST), 0, 1)
    label = np.repeat(np.arange(CLASSES), PER_CLASS)
    drawn = random.random(len(label))
    return label, drawn < clean[label], drawn < robust[label]


def costs(clean: npt.NDArray[np.bool_], robust: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Forward passes of each image."""
    return 1.0 + np.where(robust, SURVIVOR, np.where(clean, _BROKEN, 0))


def audit_rows() -> Iterator[list[str]]:
    """Wall clock, GPU hours and efficiency of a whole audit, for every network, number of GPUs and way to share."""
    per_image = costs(*images()[1:])
    ways: tuple[Handing, ...] = ("shards", "queue")
    for network in NETWORKS:
        for gpus in GPUS:
            parts = {way: planned(per_image, network, gpus * _EACH[way]) for way in ways}
            cells = [network.name, str(gpus)]
            for hard in (False, True):
                for way in ways:
                    wall, hours, efficiency = mean_of(parts[way], gpus, way, hard)
                    cells += [_time(wall)] if not hard else [_time(wall), f"{hours:.0f}", percent(efficiency, 0)]
            yield cells


def planned(per_image: npt.NDArray[np.float64], network: Network, shares: int) -> npt.NDArray[np.float64]:
    """The seconds of the parts as `engine.evaluation` plans them: of at most so many images, whole rounds of shares."""
    count = -(-len(per_image) // (_PART * shares)) * shares
    return part_costs(per_image, len(per_image) / count, network.rate, network.half, _OVERHEAD)


def mean_of(parts: npt.NDArray[np.float64], gpus: int, handing: Handing, hard: bool) -> tuple[float, float, float]:
    """Seconds, GPU hours and efficiency, means over simulations; hard: one worker in twenty at half speed, each dying
    every four hours and back after five minutes, one death in ten for good."""
    troubles = {"slow": 0.05, "lifetime": 4 * 3600.0, "restart": 300.0, "lost": 0.1} if hard else {}
    fleet = Fleet(workers=gpus, startup=_STARTUP, **troubles)
    found = [simulate(parts.tolist(), fleet, handing, seed) for seed in range(_SEEDS if hard else 1)]
    return (
        float(np.mean([one.wall for one in found])),
        float(np.mean([one.held for one in found])) / 3600,
        float(np.mean([one.efficiency for one in found])),
    )


def search_rows() -> Iterator[list[str]]:
    """The same of a search for the worst class, whose rounds wait for each other."""
    label, clean, robust = images()
    random = np.random.default_rng(1)
    order = random.permutation(len(label))
    queues = [order[(label[order] == one) & clean[order]] for one in range(CLASSES)]
    rounds: list[npt.NDArray[np.float64]] = []
    known = [0] * CLASSES

    def attack(seen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        fresh = np.concatenate([queues[one][known[one] : seen[one]] for one in range(CLASSES)])
        known[:] = seen.tolist()
        rounds.append(costs(clean[fresh], robust[fresh]))
        return np.array([np.count_nonzero(robust[queues[one][: seen[one]]]) for one in range(CLASSES)])

    right = np.bincount(label[clean], minlength=CLASSES)
    whole = np.bincount(label, minlength=CLASSES)
    state = confidence_sequences.race(right, whole, attack)
    attacked = sum(map(len, rounds))
    for network in NETWORKS:
        for gpus in GPUS:
            wall = _STARTUP + len(label) / network.rate / gpus
            for own in rounds:
                size = max(1, min(1024, len(own) // gpus))
                parts = part_costs(own, size, network.rate, network.half, _OVERHEAD)
                wall += simulate(parts.tolist(), Fleet(workers=gpus), "queue").wall
            yield [
                network.name, str(gpus), str(len(rounds)), f"{attacked:,}", str(int(state.open.sum())), _time(wall),
                f"{wall * gpus / 3600:.0f}",
            ]  # fmt: skip


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def check(options: Sequence[str]) -> None:
    """The same audit by 1, 2 and 4 processes of one thread, and what the simulation says: by the seconds that the parts
    took in that run, which says whether the processes are handed parts as simulated, and by those of the run with one
    process, on as many cores as there are, which is a forecast."""
    alone: list[float] = []
    startup, rows = 0.0, []
    with tempfile.TemporaryDirectory() as name:
        for jobs in (1, 2, 4):
            begin = time.perf_counter()
            parts = measure(options, Path(name, str(jobs)), 1, ["--jobs", str(jobs), "--cpus", "1"])
            wall = time.perf_counter() - begin
            startup, alone = (wall - sum(parts), parts) if jobs == 1 else (startup, alone)
            slower = max(1.0, jobs / (os.cpu_count() or 1))
            seen = simulate(parts, Fleet(workers=jobs, startup=startup), "shards").wall
            said = simulate([slower * part for part in alone], Fleet(workers=jobs, startup=startup), "shards").wall
            rows.append([str(jobs), str(len(parts)), f"{wall:.0f} s", f"{seen:.0f} s", f"{said:.0f} s"])
    print(table(["processes", "parts", "wall", "simulated", "forecast"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="run the audit whose options follow")
    known, options = parser.parse_known_args()
    if known.check:
        check(options)
        return
    whole = ["network", "GPUs", "shards", "queue"]
    hard = [f"{name}, {what}" for name in ("shards", "queue") for what in ("hard", "GPU h", "used")]
    print(table([*whole, *hard], audit_rows()), "\n")
    print(table(["network", "GPUs", "rounds", "attacked", "in question", "wall", "GPU h"], search_rows()))


if __name__ == "__main__":
    main()
