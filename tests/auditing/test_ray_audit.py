"""An audit on a real Ray cluster whose workers are killed; run by `make test-adapters`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from killed_cluster import repetition, table, words

pytestmark = [pytest.mark.adapters, pytest.mark.slow]
ray: Any = pytest.importorskip("ray", reason='Ray is not installed: pip install "classwise[ray]"')


def test_workers_killed_and_one_joining_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = words()
    subprocess.run([*command, "--out", str(tmp_path / "alone")], check=True, capture_output=True, env=os.environ)
    repetition(0, tmp_path, command, table(tmp_path / "alone"))
