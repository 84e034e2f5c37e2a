"""A study: a frozen dataclass whose fields are its options, the jobs it needs, and the result it makes of them.

    result = studies.run(studies.parse("homing", {"recipe": ["desk/digits/madry"]}), "runs/homing")

Killed and started again with the same call, a study resumes; finished jobs are not run again.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError, unknown
from classwise.core.run_folder import RunFolder
from classwise.core.run_lock import writing
from classwise.core.threat import Norm
from classwise.dispatch import Resources
from classwise.models.zoo import PREFIX
from classwise.results.audit_result import Audit
from classwise.results.stored_study import Job
from classwise.studies.runner import from_zoo
from classwise.studies.runner.engines import drive, engine
from classwise.studies.runner.epochs import chosen_epochs
from classwise.studies.runner.graph import Graph, StudyJob, TrainJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, find_models
from classwise.studies.runner.result import Done, StudyResult, write
from classwise.studies.runner.work import Environment, Workspace


@dataclass(frozen=True, kw_only=True)
class Study(abc.ABC):
    """The contract of every study."""

    @abc.abstractmethod
    def jobs(self) -> list[StudyJob]:
        """The trainings, audits and derived files it needs."""

    @abc.abstractmethod
    def result(self, done: Done) -> StudyResult:
        """Its tables, figures and verdicts, from the finished jobs."""

    @property
    def title(self) -> str:
        return (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")

    def settings(self) -> dict[str, Any]:
        """What the page of the result lists: its options."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class OfModels(Study):
    """A study of given models and of models trained by recipes.

    model: checkpoints or run folders, NAME=PATH to name one. recipe: recipes to train. set: settings of the recipes to
    change, NAME=part.key=value for one of them. data, eps, norm: instead of what the models were trained with. epoch:
    the model after this epoch instead of the best one, 75 of all models or NAME=75 of one. per_class: test images of
    each class. seed: of the audits.
    """

    model: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    data: str | None = None
    eps: str | None = None
    norm: Norm | None = None
    epoch: tuple[str, ...] = ()
    per_class: int | None = None
    seed: int = 0

    def jobs(self) -> list[StudyJob]:
        """The training of each model, where it has one, and what the study does with it."""
        return [job for model in self.models() for job in (*model.jobs, *self.jobs_of(model))]

    def jobs_of(self, model: ModelUnderStudy) -> Sequence[StudyJob]:
        """What is done with one model; of studies whose jobs are each about one."""
        raise NotImplementedError

    def models(self) -> list[ModelUnderStudy]:
        return chosen_epochs(self.trained(), self.epoch)

    def audits(self, done: Done) -> dict[str, Audit]:
        """The audit of each model, in studies that call it NAME-audit."""
        return {model.name: done.audit(f"{model.name}-audit") for model in self.models()}

    def trained(self) -> list[ModelUnderStudy]:
        """The models as their trainings choose them, whatever `epoch` says."""
        return find_models(self.model, self.recipe, self.set, Setting(self.data, self.eps, self.norm))


def run(
    study: Study,
    out: str | Path,
    *,
    environment: Environment | None = None,
    engine_spec: str = "local",
    resources: Resources | None = None,
    shards: int = 1,
    use: Mapping[str, str | Path] | None = None,
    pool: str | Path | None = None,
    zoo: bool = True,
    watch: Callable[[str, int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> StudyResult:
    """Run a study's jobs and write its result below `out`.

    shards: jobs among which each audit is divided.
    use: existing run folders by the name of the job they replace; they are copied, and checked to have been made with
        that job's settings.
    pool: a folder of jobs that several studies share.
    zoo: take models that the zoo has of the same recipe and seed instead of training them.
    watch: called with the name of each finished job, the number of finished ones, and of all.
    say: called with a sentence about each model that is taken from the zoo.
    """
    graph = Graph.of(study.jobs())
    with writing(out):
        workspace = Workspace.begin(Path(out), graph, environment or Environment(), Path(pool) if pool else None)
        for name, given in (use or {}).items():
            _adopt(workspace, name, Path(given))
        for job in workspace.graph:
            if isinstance(job, TrainJob):
                workspace.check_recipe(job)
        _use_zoo(workspace, zoo, say or (lambda sentence: None))
        over = sum(workspace.finished(job) is not None for job in workspace.graph)
        resources = resources or Resources()
        at_once = resources.jobs if engine_spec == "local" else None  # a cluster has a queue of its own
        with engine(engine_spec, workspace, resources, shards) as submit:
            for number, name in enumerate(drive(workspace, submit, at_once), over + 1):
                if watch is not None:
                    watch(name, number, len(workspace.graph))
        result = study.result(Done(workspace))
        models = tuple(f"{name}={PREFIX}{entry}" for name, entry in from_zoo.taken(workspace).items())
        jobs: list[Job] = [
            {
                "name": job.name,
                "kind": job.kind,
                "seconds": float((workspace.finished(job) or {}).get("seconds") or 0.0),
            }
            for job in workspace.graph
        ]
        write(result, Path(out), study.title, {**study.settings(), "from the zoo": models}, jobs)
    return result


def _use_zoo(workspace: Workspace, wanted: bool, say: Callable[[str], None]) -> None:
    """Take trainings from the zoo, or refuse to resume with such ones."""
    if not wanted:
        from_zoo.refuse(workspace, from_zoo.taken(workspace))
        return
    for name, entry in from_zoo.take(workspace, from_zoo.in_zoo(workspace.graph)).items():
        does = "trains" if isinstance(workspace.graph.jobs[name], TrainJob) else "runs"
        say(f"{name}: using {PREFIX}{entry} (--no-zoo {does} it instead).")


def check_given(workspace: Workspace, name: str, given: Path) -> None:
    """Raise if `given` cannot replace a job of that name."""
    if name not in workspace.graph.jobs:
        raise unknown("job", name, workspace.graph.jobs)
    if not RunFolder(given).config_file.is_file():
        raise UserError(f"{given} is no run folder (it has no config.toml); it cannot replace the job {name}.")


def _adopt(workspace: Workspace, name: str, given: Path) -> None:
    """Copy a run folder to that of the job, which then finds everything done, or reports other settings."""
    check_given(workspace, name, given)
    folder = workspace.folder_of(name)
    with writing(folder, wait=True):  # a pool is shared with other studies
        if not RunFolder(folder).config_file.exists():
            RunFolder(folder).copy_from(RunFolder(given))
