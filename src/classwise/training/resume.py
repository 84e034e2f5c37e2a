"""The settings in a training's run folder, so that it can be resumed without repeating them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder


def recipe_of(folder: Path) -> dict[str, Any]:
    """The recipe of a run folder; an error where there is none to resume, or where only Python can."""
    config = _config(folder)
    if given := config.get("run", {}).get("given"):
        raise UserError(
            f"{folder} was trained with {' and '.join(given)} given in Python, which no file holds: resume it there, "
            "with the same call of cw.train."
        )
    return config


def root_of(folder: Path) -> Path | None:
    """The data folder of a training; None where it had none."""
    root = _config(folder).get("run", {}).get("root")
    return None if root is None else Path(root)


def _config(folder: Path) -> dict[str, Any]:
    config = TrainingFolder(folder).config()
    if "method" not in config:
        raise UserError(
            f"{folder} is no run folder of a training (its config.toml has no method); start one with --out."
        )
    return config
