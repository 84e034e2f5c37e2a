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
from pathlib import Path

from classwise.core.records import Records
from classwise.core.run_folder import AuditFolder

_JOBS = 2


def seconds(run: Path) -> list[float]:
    """The seconds that the parts of each shard took together."""
    spent = [0.0] * _JOBS
    for path in AuditFolder(run).records.glob("*.parquet"):
        records = Records.read(path)
        assert records.meta.part is not None
        spent[records.meta.part.number % _JOBS] += sum(cost["seconds"] for cost in records.meta.stats.values())
    return spent


def measure(options: list[str], folder: Path, threads: int, more: list[str]) -> list[float]:
    """Run the audit once, and look at what its parts took."""
    command = [sys.executable, "-m", "classwise", "audit", *options, "--out", str(folder), "--no-progress", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return seconds(folder)


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
            two.append(max(shards))
            print(f"one process, two workers: {one[-1]:.1f} s; two processes: {two[-1]:.1f} s", flush=True)
    print(f"throughput of two processes: {min(one) / min(two):.2f} of that of two workers in one process")


if __name__ == "__main__":
    main()
