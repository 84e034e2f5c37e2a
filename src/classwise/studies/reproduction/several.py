"""A table that needs several studies, such as one for each data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from classwise.show.figures.style import Chart
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import Study


@dataclass(frozen=True, kw_only=True)
class Several(Study):
    """Several studies of one table.

    parts: the studies by name; the tables and figures of all but the first bear theirs.
    """

    parts: Mapping[str, Study]

    def __hash__(self) -> int:
        return hash(tuple(self.parts.items()))

    def __getattr__(self, name: str) -> Any:
        """An option of the first study."""
        if name.startswith("_") or name == "parts":
            raise AttributeError(name)
        return getattr(next(iter(self.parts.values())), name)

    def jobs(self) -> list[StudyJob]:
        return [job for study in self.parts.values() for job in study.jobs()]

    def result(self, done: Done) -> StudyResult:
        tables: dict[str, pd.DataFrame] = {}
        charts: dict[str, Chart] = {}
        claims: list[Claim] = []
        notes: dict[str, None] = {}
        data: dict[str, pd.DataFrame] = {}
        for place, (name, study) in enumerate(self.parts.items()):
            own, end = study.result(done), f"_{name}" if place else ""
            tables |= {f"{key}{end}": table for key, table in own.tables.items()}
            charts |= {f"{key}{end}": chart for key, chart in own.figures.items()}
            data |= {f"{key}{end}": rows for key, rows in own.data.items()}
            claims += own.claims
            notes |= dict.fromkeys(own.notes)
        return StudyResult(tables, charts, claims, list(notes), data)
