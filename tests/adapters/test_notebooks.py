"""The example notebooks, run from their first cell to their last in an empty folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.adapters, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("CLASSWISE_CHARTS", "static")
    from execute import execute  # type: ignore[import-not-found]

    run = [cell for cell in execute(path).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in run)
    assert any("text/html" in output.get("data", {}) for cell in run for output in cell.outputs)
    sys.modules.pop("execute", None)
