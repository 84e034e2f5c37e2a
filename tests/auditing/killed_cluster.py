"""An audit on a real Ray cluster of this machine whose workers are killed meanwhile, compared with a single process.

    python tests/auditing/killed_cluster.py --repetitions 10

A head without CPUs and two workers of one CPU; both workers are killed (-9) at random moments, and another one joins
late. Afterwards the rows must be those of the single process, and the summary must have been written once.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from classwise.core.records import COLUMNS, Records

NET = Path(__file__).parents[1] / "nearest_mean.py"
EXACT = ["index", "label", "attack", "eps", "prediction", "step", "queries"]
_MEMORY = 80 * 2**20  # bytes of a node's object store


def words() -> list[str]:
    """The command, without its run folder."""
    attacks = ["--attack", "pgd-20", "--attack", "square:queries=1500", "--eps", "0.1"]
    data = ["--data", "digits", "--per-class", "60", "--batch-size", "16"]
    return [sys.executable, "-m", "classwise", "audit", "--model", f"{NET}:make", *data, *attacks]


def table(folder: Path) -> pd.DataFrame:
    return Records.read(folder).frame[list(COLUMNS)].sort_values(["attack", "index"], ignore_index=True)


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Equal rows; what is computed with floating-point numbers up to rounding."""
    pd.testing.assert_frame_equal(one[EXACT], other[EXACT])
    pd.testing.assert_frame_equal(one.drop(columns=EXACT), other.drop(columns=EXACT), rtol=1e-4, atol=1e-5)


@contextmanager
def cluster() -> Iterator[Any]:
    """A head without CPUs, which computes nothing."""
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": _MEMORY, "include_dashboard": False},
    )
    try:
        yield made
    finally:
        made.shutdown()


def repetition(seed: int, folder: Path, command: list[str], expected: pd.DataFrame) -> str:
    """One audit; what happened, in a line."""
    chance, out = random.Random(seed), folder / f"run-{seed}"
    with cluster() as nodes:
        workers = [nodes.add_node(num_cpus=1, object_store_memory=_MEMORY) for _ in range(2)]
        engine = ["--engine", f"ray:{nodes.address}", "--cpus", "1", "--jobs", "3", "--out", str(out)]
        with (folder / f"log-{seed}.txt").open("wb") as log:
            process = subprocess.Popen([*command, *engine], stdout=log, stderr=subprocess.STDOUT)
        try:
            story = _kill(nodes, workers, process, out, chance)
            status = process.wait(600)
        finally:
            process.kill()
    printed = (folder / f"log-{seed}.txt").read_text()
    assert status == 0, printed
    assert printed.count("Robustness by class") == 1, printed
    assert_same(table(out), expected)
    return story


def _kill(nodes: Any, workers: list[Any], process: subprocess.Popen[bytes], out: Path, chance: random.Random) -> str:
    """Kill both workers at random moments, with one that joins in between; the moments in seconds."""
    while not (out / "config.toml").exists():
        assert process.poll() is None
        time.sleep(0.05)
    begin, summary, story = time.monotonic(), out / "summary.json", []
    first, second, third = sorted(chance.sample(range(24), 3))  # of the 36 files

    def after(files: int, what: str) -> None:
        while len(list(out.glob("records/*.parquet"))) < files:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        assert not summary.exists(), f"the audit had ended before: {what}"
        there = len(list(out.glob("records/*.parquet")))
        story.append(f"{what} at {time.monotonic() - begin:.1f} s, {there} files")

    after(first, "worker killed")
    nodes.remove_node(workers[0], allow_graceful=False)
    after(second, "worker joined")
    nodes.add_node(num_cpus=1, object_store_memory=_MEMORY)
    after(third, "worker killed")
    nodes.remove_node(workers[1], allow_graceful=False)
    return "; ".join(story)


def main(repetitions: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = words()
        subprocess.run([*command, "--out", str(folder / "alone")], check=True, capture_output=True)
        expected = table(folder / "alone")
        for seed in range(repetitions):
            begin = time.monotonic()
            story = repetition(seed, folder, command, expected)
            print(f"{seed + 1}: rows equal, one summary, {time.monotonic() - begin:.0f} s. {story}.", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=10)
    main(parser.parse_args().repetitions)
