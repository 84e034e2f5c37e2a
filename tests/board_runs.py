"""Run folders for tests of the leaderboard: audits with their settings, and trainings beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classwise.core.run_config import write_config
from classwise.results.audit_result import Audit
from page_runs import write_run

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def write_entry(
    folder: Path,
    right: Sequence[int],
    names: Sequence[str] = CIFAR10,
    data: str = "cifar10",
    model: str = "resnet-18",
    **settings: Any,
) -> Audit:
    """A finished audit under pgd-20 with so many of 40 images of each class right, and what its config.toml says."""
    write_run(folder, right, names, images=False, **settings)
    config = {
        "audit": {"norm": "linf", "eps": 8 / 255},
        "model": {"spec": model, "fingerprint": f"{folder.name:0<64}"},
        "data": {"name": data, "examples": 40 * len(names), "classes": list(names), "fingerprint": "d" * 64},
        "command": {"model": model, "data": data, "attack": ["pgd-20"], "eps": "8/255", "confidence": 0.95},
    }
    write_config(folder / "config.toml", config)
    return Audit.load(folder)


def write_trained(folder: Path, method: str, seed: int, seconds: Sequence[float] = (10.0, 20.0)) -> Path:
    """A finished training with its recipe and history, and a file as its checkpoint; returns the checkpoint."""
    folder.mkdir(parents=True)
    recipe: Mapping[str, Any] = {
        "method": {"name": method},
        "model": {"spec": "resnet-18"},
        "train": {"seed": seed, "epochs": len(seconds)},
        "run": {"root": str(folder)},
    }
    write_config(folder / "config.toml", recipe)
    lines = [f"{epoch},{spent}" for epoch, spent in enumerate(seconds, 1)]
    (folder / "history.csv").write_text("\n".join(["epoch,seconds", *lines]) + "\n")
    (folder / "best.pt").write_bytes(b"weights")
    return folder / "best.pt"
