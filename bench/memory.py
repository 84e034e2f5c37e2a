"""The memory of a whole audit through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench.markdown import paragraph, percent, table
from bench.setting import EPS, SPEC, Setting

TITLE = "Memory of an audit"

LIMIT = 1.5e9  # bytes
_ATTACK = "pgd-20"

# Run by a Python of its own: a child's peak includes what its parent held when it was started, and this holds little.
_LAUNCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak * (1 if sys.platform == "darwin" else 1024), file=sys.stderr)
"""


def run(setting: Setting) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        peak, summary = audit(setting, Path(scratch) / "run")
    count = sum(row["n"] for row in summary["attacks"]["clean"]["by_class"])
    clean, robust = (summary["attacks"][name]["accuracy"] for name in ("clean", _ATTACK))
    timing = summary["timing"]
    row = [
        f"{count:,}",
        f"{peak / 1e6:,.0f} MB",
        f"{timing['wall_seconds']:.0f}",
        percent(clean, 2),
        percent(robust, 2),
    ]
    return "\n\n".join(
        [
            paragraph(
                f"The same model and all {count:,} images of the {setting.data}, through",
                f"`classwise audit … --attack {_ATTACK} --eps {EPS} --out …` in a process of its own, with",
                f"{timing['threads']} threads, batch {timing['batch']} in {timing['workers']} workers. The peak is",
                "that of the process's resident memory, Python, torch and data included:",
                f"{'under' if peak < LIMIT else '**over**'} the {LIMIT / 1e9:.1f} GB allowed.",
            ),
            table(["images", "peak memory", "seconds", "clean", "robust"], [row], text_columns=0),
        ]
    )


def audit(setting: Setting, out: Path) -> tuple[int, dict[str, Any]]:
    """The peak of resident memory in bytes and the summary of an audit of all test images in a process of its own."""
    command = [sys.executable, "-m", "classwise", "audit", "--model", SPEC, "--weights", str(setting.weights)]
    command += ["--data", "cifar10", "--root", str(setting.root), "--attack", _ATTACK, "--eps", EPS]
    command += ["--out", str(out), "--device", "cpu", "--json", "--no-progress"]
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCH, *command],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the audit failed:\n{done.stderr}")
    return int(done.stderr.split()[-1]), json.loads(done.stdout)
