"""Doing one job, in its folder, wherever the study's folder can be reached.

    study/jobs.json          the jobs, and where data are
    study/jobs/NAME/         what a job leaves: a run folder of a training or audit, or files
    study/jobs/NAME/job.json written last, when it is finished: its settings, time and memory

``python -m classwise.studies.work FOLDER NAME`` does one job; a finished one is kept as it is.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from classwise.errors import UserError
from classwise.results import write_text
from classwise.studies.graph import Audit, Derive, Graph, Job, Train, fill, read_job

MARK = "job.json"


@dataclass(frozen=True)
class Place:
    """Where jobs find data, and on what they run; it changes nothing in their results."""

    root: str | None = None
    download: bool = False
    device: str | None = None
    progress: bool | None = False


@dataclass(frozen=True)
class Desk:
    """The folder of a study: its jobs, and which of them are finished."""

    folder: Path
    graph: Graph
    place: Place

    @classmethod
    def begin(cls, folder: Path, graph: Graph, place: Place) -> Desk:
        """Write down the jobs, so that other processes can do them."""
        desk = cls(folder, graph, place)
        about = {"place": asdict(place), "jobs": [job.settings() for job in graph]}
        write_text(folder / "jobs.json", json.dumps(about, indent=1))
        return desk

    @classmethod
    def read(cls, folder: Path) -> Desk:
        about = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
        return cls(folder, Graph.of(map(read_job, about["jobs"])), Place(**about["place"]))

    def folder_of(self, name: str) -> Path:
        return self.folder / "jobs" / name

    def finished(self, job: Job) -> Mapping[str, Any] | None:
        """What is known of a finished job; None if it is not. One of the same name with other settings is an error."""
        path = self.folder_of(job.name) / MARK
        if not path.is_file():
            return None
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(job.settings()))
        differing = [key for key in wanted if about["job"].get(key) != wanted[key]]
        if differing:
            lines = [f"  {key}: {about['job'].get(key)} there, {wanted[key]} now" for key in differing]
            raise UserError(
                f"the job {job.name} in {path.parent} was done with other settings:\n" + "\n".join(lines) + "\n"
                "Choose another --out, or delete that folder to do it again."
            )
        return about

    def do(self, name: str) -> None:
        """Do the job of that name, unless it is finished; killed and called again, it goes on where it can."""
        job = self.graph.jobs[name]
        if self.finished(job) is not None:
            return
        folder = self.folder_of(name)
        folder.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        ready = read_job(fill(job.settings(), {other: str(self.folder_of(other)) for other in job.after}))
        _DO[type(ready)](ready, folder, self.place)
        about = {"job": job.settings(), "seconds": time.perf_counter() - begin, "megabytes": _peak_megabytes()}
        write_text(folder / MARK, json.dumps(about, indent=1))


def _train(job: Train, folder: Path, place: Place) -> None:
    from classwise.training.train import train

    train(
        job.recipe, out=folder, changes=job.changes, root=place.root, download=place.download, device=place.device,
        progress=place.progress,
    )  # fmt: skip


def _audit(job: Audit, folder: Path, place: Place) -> None:
    from classwise.evaluation.audit import audit

    audit(
        job.model, job.data, list(job.attacks), job.eps, out=folder, root=place.root, download=place.download,
        device=place.device, progress=place.progress, **job.options,
    )  # fmt: skip


def _derive(job: Derive, folder: Path, place: Place) -> None:
    module, _, name = job.function.partition(":")
    getattr(importlib.import_module(module), name)(folder, place, **job.arguments)


_DO: dict[type[Job], Callable[..., None]] = {Train: _train, Audit: _audit, Derive: _derive}


def _peak_megabytes() -> float:
    """The most memory this process has had; Linux counts kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main(folder: str, name: str) -> int:
    try:
        Desk.read(Path(folder)).do(name)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
