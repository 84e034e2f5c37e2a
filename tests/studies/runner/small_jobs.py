"""What tests of jobs share: a desk that is only planned."""

from __future__ import annotations

from pathlib import Path

from classwise.studies.runner.graph import Graph, Job
from classwise.studies.runner.work import Desk, Place


def planned(folder: Path, *jobs: Job) -> Desk:
    """A desk of which nothing is written."""
    return Desk(folder, Graph.of(jobs), Place())
