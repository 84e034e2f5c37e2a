"""Running one job in its folder, on any machine that can reach the study's folder.

    study/jobs.json          the jobs, and where the data are
    study/jobs/NAME/         the results of a job: a run folder of a training or audit, or files
    study/jobs/NAME/job.json written last, when it is finished: its settings, time and memory
    study/jobs/NAME/log.txt  the output of a separate process, and the traceback of an unexpected error

Studies may share a pool of jobs, so that nothing is trained twice: there a job's folder is named after the job and a
hash of its settings and of those it depends on (``pool/madry-3fa2c1d0``).

``python -m classwise.studies.runner.work FOLDER NAME`` runs one job, unless it is finished; it stops with the process
that started it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from classwise.core.errors import Unfinished, UserError
from classwise.core.run_folder import RunFolder, StudyFolder, TrainingFolder
from classwise.core.run_lock import writing
from classwise.core.storage import atomic_write_text
from classwise.core.trust import trusting
from classwise.core.user_files import IN_FILE, take
from classwise.dispatch.call import main
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, StudyJob, TrainJob, fill, read_job


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where jobs find data, and on which device they run; it does not change their results."""

    root: str | None = None
    download: bool = False
    device: str | None = None
    progress: bool | None = False
    trust: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """As arguments of `train` and `audit`; trust is given for all that a job loads."""
        return {name: value for name, value in asdict(self).items() if name != "trust"}


@dataclass(frozen=True)
class Workspace:
    """The folder of a study: its jobs, and which of them are finished."""

    folder: Path
    graph: Graph
    environment: Environment
    pool: Path | None = None

    @classmethod
    def begin(cls, folder: Path, graph: Graph, environment: Environment, pool: Path | None = None) -> Workspace:
        """Store the jobs, so that other processes can run them from any folder."""
        root = None if environment.root is None else str(Path(environment.root).resolve())
        workspace = cls(folder.resolve(), graph, dataclasses.replace(environment, root=root), pool and pool.resolve())
        atomic_write_text(StudyFolder(workspace.folder).jobs_file, json.dumps(workspace.about(), indent=1))
        return workspace

    @classmethod
    def read(cls, folder: Path) -> Workspace:
        return cls.of(folder, json.loads(StudyFolder(folder).jobs_file.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, folder: Path, about: Mapping[str, Any]) -> Workspace:
        pool = None if about["pool"] is None else Path(about["pool"])
        return cls(folder, Graph.of(map(read_job, about["jobs"])), Environment(**about["place"]), pool)

    def about(self) -> dict[str, Any]:
        """Its jobs and where the data are, as plain values."""
        pool = None if self.pool is None else str(self.pool)
        return {"place": asdict(self.environment), "pool": pool, "jobs": [job.settings() for job in self.graph]}

    def folder_of(self, name: str) -> Path:
        if self.pool is not None:
            return self.pool / f"{name}-{self.graph.digest(name)}"
        return StudyFolder(self.folder).job(name).path

    def finished(self, job: StudyJob) -> Mapping[str, Any] | None:
        """The record of a finished job; None if it is not. One of the same name with other settings is an error."""
        path = RunFolder(self.folder_of(job.name)).job_file
        if not path.is_file():
            return None
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(job.settings()))
        self._refuse(job, about["job"], wanted, [key for key in wanted if about["job"].get(key) != wanted[key]])
        return about

    def check_recipe(self, job: TrainJob) -> None:
        """Raise if a finished training was done by its recipe as it was before it was changed."""
        from classwise.training import recipe
        from classwise.zoo.matching import contents, differing, trained

        run = TrainingFolder(self.folder_of(job.name))
        if self.finished(job) is None or not run.config_file.is_file():
            return
        chosen = recipe.load(job.recipe, job.changes)
        stored, now = trained(run, chosen), contents(chosen)
        nowhere = dict.fromkeys(job.after, "")
        files = {change.partition("=")[0] for change in job.changes if fill(change, nowhere) != change}
        # Files of other jobs are checked with those jobs.
        self._refuse(job, stored, now, [key for key in differing(stored, now) if key not in files])

    def _refuse(self, job: StudyJob, old: Mapping[str, Any], new: Mapping[str, Any], differing: list[str]) -> None:
        lines = [f"  {key}: {old.get(key)} there, {new.get(key)} now" for key in differing]
        if lines:
            raise UserError(
                f"the job {job.name} in {self.folder_of(job.name)} was done with other settings:\n"
                + "\n".join(lines)
                + "\nChoose another --out, or delete that folder to do it again."
            )

    def do(self, name: str, shard: str | None = None) -> None:
        """Run the job of that name, unless it is finished; killed and called again, it resumes where it stopped.

        Only one process at a time runs a job: a second one waits, and finds it finished. Of an audit several may run a
        `shard` each; the last of them finishes the job.
        """
        job, folder = self.graph.jobs[name], self.folder_of(name)
        if self.finished(job) is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder, wait=True) if shard is None else contextlib.nullcontext():
            if self.finished(job) is not None:
                return
            begin = time.perf_counter()
            ready = read_job(fill(job.settings(), {other: str(self.folder_of(other)) for other in job.after}))
            with trusting(self.environment.trust):
                if isinstance(ready, AuditJob):
                    _audit(ready, folder, self.environment, shard)
                else:
                    _DO[type(ready)](ready, folder, self.environment)
            about = {"job": job.settings(), "seconds": time.perf_counter() - begin, "megabytes": peak_megabytes()}
            atomic_write_text(RunFolder(folder).job_file, json.dumps(about, indent=1))

    def attempt(self, name: str, shard: str | None = None) -> str | None:
        """Run the job; its error message, or None. The traceback of an unexpected error is written to its log."""
        try:
            self.do(name, shard)
        except Unfinished:
            return None
        except UserError as error:
            return str(error)
        except Exception as error:
            log = RunFolder(self.folder_of(name)).log_file
            with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as sink:
                traceback.print_exc(file=sink)
            return f"{type(error).__name__}: {error} (see {log})"
        return None


def _train(job: TrainJob, folder: Path, environment: Environment) -> None:
    from classwise.training.train import train

    train(job.recipe, out=folder, changes=job.changes, **environment.arguments)


def _audit(job: AuditJob, folder: Path, environment: Environment, shard: str | None) -> None:
    from classwise.auditing.audit import audit_by

    audit_by(job.config(out=folder, shard=shard, **environment.arguments))


def _derive(job: DeriveJob, folder: Path, environment: Environment) -> None:
    module, _, name = job.function.rpartition(":")
    in_file = IN_FILE.fullmatch(job.function)
    call = take(module, name, "function")[0] if in_file else getattr(importlib.import_module(module), name)
    call(folder, environment, **job.arguments)


_DO: dict[type[StudyJob], Callable[..., None]] = {TrainJob: _train, DeriveJob: _derive}


def attempt(folder: str, name: str, shard: str | None = None) -> str | None:
    """Run one job of the study in `folder`, or a shard of it, in whatever process; see `Workspace.attempt`."""
    return Workspace.read(Path(folder)).attempt(name, shard)


def peak_megabytes() -> float:
    """The peak memory of this process; 0 if the system does not report it.

    Linux's ru_maxrss includes the parent's memory at the time of the fork; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    folder, name, parent = (*sys.argv[1:], str(os.getppid()))[:3]
    sys.exit(main(parent, "classwise.studies.runner.work:attempt", json.dumps([folder, name])))
