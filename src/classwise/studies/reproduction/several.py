"""A table that needs several studies, such as one for each data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.result import Done, StudyResult, merged
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
        ends = [f"_{name}" if place else "" for place, name in enumerate(self.parts)]
        return merged([(end, study.result(done)) for end, study in zip(ends, self.parts.values(), strict=True)])
