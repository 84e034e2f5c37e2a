"""A table of several studies: the jobs of all, and what each came to under its own name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from classwise.studies.reproduction.several import Several
from classwise.studies.runner.graph import DeriveJob, StudyJob
from classwise.studies.runner.result import StudyResult
from classwise.studies.runner.study import Study


@dataclass(frozen=True, kw_only=True)
class One(Study):
    name: str
    eta: float = 0.0

    def jobs(self) -> list[StudyJob]:
        return [DeriveJob(self.name, "m:f")]

    def result(self, done: Any) -> StudyResult:
        rows = pd.DataFrame({"of": [self.name]})
        return StudyResult(
            {"methods": rows},
            figures={"radar": alt.Chart(rows).mark_point()},
            notes=("same", f"own of {self.name}"),
            data={"radar": rows},
        )


def test_tables_of_all_but_the_first_bear_the_parts_name() -> None:
    study = Several(parts={"": One(name="a", eta=0.3), "cifar100": One(name="b")})
    assert [job.name for job in study.jobs()] == ["a", "b"]
    result = study.result(None)  # type: ignore[arg-type]
    assert {name: table["of"].tolist() for name, table in result.tables.items()} == {
        "methods": ["a"],
        "methods_cifar100": ["b"],
    }
    assert list(result.figures) == list(result.data) == ["radar", "radar_cifar100"]
    assert list(result.notes) == ["same", "own of a", "own of b"]
    assert study.eta == 0.3  # an option of the first
    assert hash(study) == hash(Several(parts={"": One(name="a", eta=0.3), "cifar100": One(name="b")}))
