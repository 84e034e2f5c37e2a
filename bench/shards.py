"""Two single-threaded processes beside two workers of one process: the throughput of the same audit.

    python -m bench.shards --model best.pt --data cifar10 --root data --limit 512

The start of the processes, which an audit of any size pays once, does not count: the time is that of the parts, of two
processes that of the slower one. Both run in turn, and the best of each counts, since others may use the machine too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from classwise.core.records import Records
from classwise.core.run_folder import AuditFolder

_JOBS = 2


def part_seconds(run: Path) -> list[float]:
    """The seconds that each part of an audit took, in order."""
    spent: dict[int, float] = {}
    for path in AuditFolder(run).records.glob("*.parquet"):
        meta = Records.read(path).meta
        assert meta.part is not None
        took = sum(cost["seconds"] for cost in meta.stats.values())
        spent[meta.part.number] = spent.get(meta.part.number, 0.0) + took
    return [spent[number] for number in sorted(spent)]


def measure(options: Sequence[str], folder: Path, threads: int, more: Sequence[str]) -> list[float]:
    """Run the audit once, and look at what its parts took."""
    command = [sys.executable, "-m", "classwise", "audit", *options, "--out", str(folder), "--no-progress", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return part_seconds(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    known, options = parser.parse_known_args()
    one, two = [], []
    with tempfile.TemporaryDirectory() as name:
        for number in range(known.rounds):
            inside = measure(options, Path(name, f"one-{number}"), _JOBS, ["--workers", str(_JOBS)])
            shards = measure(options, Path(name, f"two-{number}"), 1, ["--jobs", str(_JOBS), "--cpus", "1"])
            one.append(sum(inside))
            two.append(max(sum(shards[number::_JOBS]) for number in range(_JOBS)))
            print(f"one process, two workers: {one[-1]:.1f} s; two processes: {two[-1]:.1f} s", flush=True)
    print(f"throughput of two processes: {min(one) / min(two):.2f} of that of two workers in one process")


if __name__ == "__main__":
    main()
