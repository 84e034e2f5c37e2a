"""What tests of jobs share: a workspace that is only planned."""

from __future__ import annotations

from pathlib import Path

from classwise.studies.runner.graph import Graph, StudyJob
from classwise.studies.runner.work import Environment, Workspace


def planned(folder: Path, *jobs: StudyJob) -> Workspace:
    """A workspace of which nothing is written."""
    return Workspace(folder, Graph.of(jobs), Environment())
