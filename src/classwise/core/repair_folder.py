"""The run folder of a repair; `classwise.core.run_folder` says what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.core.run_folder import REPAIR_RESULT, AuditFolder, Named, RunFolder, write_json


class RepairFolder(RunFolder):
    """The files of a repair: audits of the model before and after, and of every change tried."""

    kind = "repair"
    results = ("changes tried", ("rounds/*/change.npz", "margins/*.npz", "best.pt", "best.toml"))
    owned = (
        "job.json", REPAIR_RESULT, *results[1], "tables/*.csv", "front.svg", *(
            f"{part}/{pattern}" for part in ("before", "after", "rounds/*") for pattern in AuditFolder.owned
        ), "logs/*.txt", "slurm/*", "*/*.partial", "*.partial", "log.txt", "config.toml",
    )  # fmt: skip

    result_file = Named(REPAIR_RESULT)
    best = Named("best.pt")
    best_box = Named("best.toml")
    before = Named("before")
    after = Named("after")
    front_figure = Named("front.svg")

    def round(self, number: int) -> Path:
        """The run folder of the audit of a change, counted from 0, which is no change."""
        return self.path / "rounds" / f"{number:02d}"

    def change(self, number: int) -> Path:
        """The change itself."""
        return self.round(number) / "change.npz"

    def margins(self, number: int) -> Path:
        """A part of the margins that a bias is proposed from."""
        return self.path / "margins" / f"{number:05d}.npz"

    def write_result(self, summary: Mapping[str, Any]) -> None:
        write_json(self.result_file, summary)
