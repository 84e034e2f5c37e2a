"""Small models on the embedded digits, trained once, for every study to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import classwise as cw
from quick import QUICK


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of two short trainings, standard and madry, by name."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("standard", "madry"):
        changes = [change for change in QUICK if name != "standard" or "method" not in change]
        cw.train(f"desk/digits/{name}", out=folder / name, changes=changes, progress=False)
    return {name: folder / name for name in ("standard", "madry")}
