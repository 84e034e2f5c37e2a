"""The jobs of a study and their dependencies.

A job is plain data, so that any process on any machine can run it:

    TrainJob("trades", "desk/cifar10/trades")                                      a run folder of a training
    AuditJob("pgd", model="{trades}/best.pt", data="cifar10", attacks=("pgd-20",)) a run folder of an audit
    DeriveJob("norms", "classwise.studies.weight_norm:norms", {"model": "{trades}/best.pt"})    files of a function

``{trades}`` is the folder of the job called trades, and makes this job wait for that one.
"""

from __future__ import annotations

import dataclasses
import graphlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from classwise.auditing.config import AuditConfig
from classwise.auditing.parts import ThreatPart
from classwise.core.errors import UserError, unknown
from classwise.core.run_folder import TrainingFolder

JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
_REFERENCE = re.compile(rf"\{{({JOB_NAME})\}}")

#: Modules whose functions have moved, and under which name jobs store them: a finished job is recognised by the name
#: that it was first stored with.
_STORED_AS = {
    "classwise.studies.background.pictures": "classwise.studies.parts.background_pictures",
    "classwise.studies.fairness.linear_bound": "classwise.studies.parts.linear_bound",
    "classwise.studies.features.building": "classwise.studies.features",
    "classwise.studies.temperature.derived": "classwise.studies.temperature",
}


def job_name(text: str) -> str:
    """The text without what the name of a job must not contain."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text)


@dataclass(frozen=True)
class StudyJob:
    """A piece of work with a name, which is also its folder's."""

    name: str
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if not re.fullmatch(JOB_NAME, self.name):
            raise UserError(f"a job cannot be called {self.name!r}: letters, digits and _ . + - are allowed.")

    def settings(self) -> dict[str, Any]:
        """Everything that defines this job, by which a finished one is recognised."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @property
    def after(self) -> frozenset[str]:
        """The jobs whose folders it reads."""
        return frozenset(_REFERENCE.findall(json.dumps(self.settings(), default=str)))


@dataclass(frozen=True)
class TrainJob(StudyJob):
    """A training by a recipe with changed settings; its folder holds best.pt, last.pt and history.csv."""

    kind = "train"
    recipe: str
    changes: tuple[str, ...] = ()

    @property
    def folder(self) -> TrainingFolder:
        """Where it will be, as other jobs name it."""
        return TrainingFolder(Path(f"{{{self.name}}}"))


@dataclass(frozen=True, kw_only=True)
class AuditJob(StudyJob):
    """An audit of a model; `options` are those of `classwise.audit` by name, such as per_class or protocol."""

    kind = "audit"
    model: str
    data: str
    attacks: tuple[str, ...]
    eps: str | float = ThreatPart().eps
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.config()  # what is wrong with its options is found before anything is trained

    def config(self, **more: Any) -> AuditConfig:
        """What is audited, and `more`, such as where."""
        given = {"model": self.model, "data": self.data, "attacks": list(self.attacks), "eps": self.eps}
        return AuditConfig.of(**{**given, **self.options, **more})


@dataclass(frozen=True)
class DeriveJob(StudyJob):
    """A call of ``package.module:function(folder, environment, **arguments)``, which leaves files in its folder."""

    kind = "derive"
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        module, colon, name = self.function.partition(":")
        return {**super().settings(), "function": f"{_STORED_AS.get(module, module)}{colon}{name}"}


@dataclass(frozen=True)
class Graph:
    """Jobs by name, in an order in which they can be done: that of the study, each after those it needs."""

    jobs: Mapping[str, StudyJob]

    @classmethod
    def of(cls, jobs: Iterable[StudyJob]) -> Graph:
        """The graph of these jobs; the same job named twice is one."""
        found: dict[str, StudyJob] = {}
        for job in jobs:
            if found.setdefault(job.name, job) != job:
                raise UserError(f"two different jobs are called {job.name!r}; give one of the models another name.")
        for job in found.values():
            for name in job.after - found.keys():
                raise unknown(f"job needed by {job.name}", name, found)
        try:
            graphlib.TopologicalSorter({name: sorted(job.after) for name, job in found.items()}).prepare()
        except graphlib.CycleError as error:
            raise UserError(f"these jobs wait for each other: {' -> '.join(error.args[1])}.") from None
        placed: dict[str, StudyJob] = {}

        def place(name: str) -> None:
            if name not in placed:
                for needed in sorted(found[name].after):
                    place(needed)
                placed[name] = found[name]

        for name in found:
            place(name)
        return cls(placed)

    def __iter__(self) -> Iterator[StudyJob]:
        return iter(self.jobs.values())

    def __len__(self) -> int:
        return len(self.jobs)

    def training_of(self, model: str) -> TrainJob | None:
        """The job that trains a model, ``{trades}/best.pt``, if one of these does; also of a model that is derived
        from a trained one, such as a repaired one."""
        job = self.jobs.get(model.partition("}")[0].removeprefix("{"))
        if isinstance(job, DeriveJob) and "model" in job.arguments:
            return self.training_of(str(job.arguments["model"]))
        return job if isinstance(job, TrainJob) else None

    def digest(self, name: str) -> str:
        """A short hash of a job's settings and of those of all jobs it depends on."""
        settings = json.dumps(self.jobs[name].settings(), sort_keys=True)
        return hashlib.sha256(_REFERENCE.sub(lambda match: self.digest(match[1]), settings).encode()).hexdigest()[:8]

    def waiting(self, finished: Iterable[str] = ()) -> graphlib.TopologicalSorter[str]:
        """The remaining jobs, for `get_ready` and `done`."""
        over = set(finished)
        left = {name: job.after - over for name, job in self.jobs.items() if name not in over}
        order = graphlib.TopologicalSorter(left)
        order.prepare()
        return order


def fill(value: Any, folders: Mapping[str, str]) -> Any:
    """The value with ``{job}`` replaced by the job's folder, in every text inside it."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: folders.get(match[1], match[0]), value)
    if isinstance(value, Mapping):
        return {key: fill(item, folders) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(fill(item, folders) for item in value)
    return value


def read_job(settings: Mapping[str, Any]) -> StudyJob:
    """The job these settings describe."""
    kinds: dict[str, Callable[..., StudyJob]] = {own.kind: own for own in (TrainJob, AuditJob, DeriveJob)}
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    if fields["kind"] == DeriveJob.kind:
        module, colon, name = fields["function"].partition(":")
        now = {stored: module for module, stored in _STORED_AS.items()}
        fields["function"] = f"{now.get(module, module)}{colon}{name}"
    return kinds[str(fields.pop("kind"))](**fields)
