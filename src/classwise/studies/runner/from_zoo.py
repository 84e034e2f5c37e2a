"""Trainings that need not be done, since the zoo has the model of the same recipe; repairs of these models, and audits,
that it has too."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from classwise.core.errors import UserError
from classwise.core.run_folder import RunFolder, TrainingFolder
from classwise.core.run_lock import writing
from classwise.core.storage import atomic_write, atomic_write_text
from classwise.models.zoo import ENTRY, PREFIX, Zoo, is_zoo, open_zoo
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, TrainJob
from classwise.studies.runner.work import Workspace
from classwise.training import recipe
from classwise.zoo import repaired
from classwise.zoo.matching import find, find_audit

_BEST = f"/{TrainingFolder.best}"
_AUDITS = "audits/"  # the folder of a model's audits


def in_zoo(graph: Graph) -> dict[str, str]:
    """The trainings of a study whose best model the zoo has, the repairs that it has of such models, and the audits of
    both; their names there.

    Of a training that other jobs need more than best.pt of (a later checkpoint, those of its epochs) there is none. One
    that fine-tunes or distils such a model is compared by the name of that model. A zoo that cannot be reached is a
    warning: then everything is trained.
    """
    found: dict[str, str] = {}
    try:
        zoo = open_zoo()
        for job in graph if zoo.entries else ():
            if isinstance(job, TrainJob) and job.after <= found.keys() and _only_best(graph, job.name):
                changes = [_named(change, found) for change in job.changes]
                if (entry := find(recipe.load(job.recipe, changes), zoo)) is not None:
                    found[job.name] = entry.name
        for job in graph if zoo.entries else ():
            if isinstance(job, DeriveJob) and is_zoo(model := _named(str(job.arguments.get("model", "")), found)):
                wanted = repaired.asked(job.settings()["function"], job.arguments)
                if (entry := repaired.find(zoo.entry(model).name, wanted, zoo)) is not None:
                    found[job.name] = entry.name
        for job in graph if zoo.entries else ():
            if isinstance(job, AuditJob) and is_zoo(model := _named(job.model, found)):
                entry = zoo.entry(model)
                if (folder := find_audit(job.config(), entry, zoo)) is not None:
                    found[job.name] = f"{entry.name}/{folder}"
    except UserError as error:
        warnings.warn(f"nothing is taken from the zoo: {error}", stacklevel=2)
    return found


def take(workspace: Workspace, names: Mapping[str, str]) -> dict[str, str]:
    """Fill the folders of these jobs from the zoo, as if they had been trained; those that have been begun are left as
    they are. Return the others."""
    zoo, taken = open_zoo(), {}
    for name, entry in names.items():
        run = RunFolder(workspace.folder_of(name))
        with writing(run.path, wait=True):  # a pool is shared with other studies
            if not run.config_file.exists():
                seconds = _copy(run.path, zoo, entry)
                about = {"job": workspace.graph.jobs[name].settings(), "seconds": seconds, "megabytes": 0.0}
                atomic_write_text(run.job_file, json.dumps({**about, "zoo": entry}, indent=1))
                taken[name] = entry
    return taken


def taken(workspace: Workspace) -> dict[str, str]:
    """The finished trainings of a study that were taken from the zoo, and their names there."""
    records = {job.name: workspace.finished(job) for job in workspace.graph}
    return {name: about["zoo"] for name, about in records.items() if about is not None and "zoo" in about}


def refuse(workspace: Workspace, names: Iterable[str]) -> None:
    """Raise where a study that is to train everything would resume with models of the zoo."""
    for name in names:
        raise UserError(
            f"the job {name} in {workspace.folder_of(name)} was taken from the zoo, and others may have used it: with "
            f"--no-zoo choose another --out{' and --pool' if workspace.pool else ''}."
        )


def _only_best(graph: Graph, name: str) -> bool:
    other = re.compile(rf"\{{{re.escape(name)}\}}(?!{re.escape(_BEST)})")
    return not any(other.search(json.dumps(job.settings(), default=str)) for job in graph)


def _named(change: str, found: Mapping[str, str]) -> str:
    """A change of a recipe with the checkpoints of other jobs named as those of the zoo."""
    for name, entry in found.items():
        change = change.replace(f"{{{name}}}{_BEST}", f"{PREFIX}{entry}")
    return change


def _copy(into: Path, zoo: Zoo, name: str) -> float:
    """Copy the files of a model, or of an audit of it, config.toml last: without it the copy is unfinished, and is made
    again. What they took, in seconds."""
    model, _, audit = name.partition(f"/{_AUDITS}")
    entry = zoo.entry(model)
    if audit:
        folder = f"{_AUDITS}{audit}"
        files = [file for file in entry.files if file.startswith(f"{folder}/")]
        seconds = next(own["seconds"] for own in entry.about["audits"] if own["folder"] == folder)
    else:
        folder = ""
        files = [file for file in entry.files if "/" not in file and file != ENTRY]
        seconds = entry.about.get("cost", {}).get("training_seconds", 0.0)
    for file in sorted(files, key=lambda file: file.endswith(RunFolder.config_file.name)):
        with atomic_write(into / file.removeprefix(f"{folder}/")) as handle:
            handle.write(zoo.file(model, file).read_bytes())
    return float(seconds)
