"""What a benchmark ran on: processor, cores, memory and versions, but nothing that names the machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

PACKAGES = ("classwise", "torch", "numpy", "torchattacks", "foolbox", "adversarial-robustness-toolbox", "pyautoattack")


def processor() -> str:
    """The CPU's name and its widest vector instructions, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = entries.get("flags", "").split()
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    return " ".join(filter(None, (entries.get("model name", platform.machine()), vectors and f"({vectors})")))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> float:
    """The machine's memory in GB (10⁹ bytes)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def versions() -> str:
    """Python and the packages that take part, those that are installed."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
