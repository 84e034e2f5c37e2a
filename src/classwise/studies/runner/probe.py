"""A short measurement of one job in a separate process: the peak memory is the job's, and it cannot hang the study.

    training    a few steps of the recipe itself, at the middle of the training; a validation of some held-out images
    audit       all attacks on some of the images; the rest is assumed to cost as much
    derived     none: a finished job of the same function, or unknown

A model that is still to be trained is replaced by untrained weights, which every attack breaks at once: its audit is
measured with all steps on all images, which is an upper bound. One that the zoo has is not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder
from classwise.models.zoo import open_zoo
from classwise.studies.runner.graph import AuditJob, TrainJob, fill, read_job
from classwise.studies.runner.work import Environment, Workspace, peak_megabytes
from classwise.training import recipe

if TYPE_CHECKING:
    from classwise.training.loop import PhaseData, Training

_STEPS = 12  # of the optimizer, at most; the first includes set-up
_FIRST_IMAGES = 32  # attacked by the first probe; each further one attacks four times as many
_SELECTING = ("limit", "per_class", "classes", "class_names")  # options of an audit that only select images


@dataclass(frozen=True)
class Measured:
    """Time and memory of a job, and how they are known; NaN if they are not."""

    seconds: float
    megabytes: float
    basis: str


def probe(workspace: Workspace, name: str, seconds: float, zoo: Mapping[str, str] | None = None) -> Measured:
    """Measure a training or an audit in this process, whose peak memory is then the job's.

    zoo: trainings that will be taken from it, and their names there.
    """
    job = workspace.graph.jobs[name]
    undone = [other for other in sorted(job.after) if workspace.finished(workspace.graph.jobs[other]) is None]
    there = {other: open_zoo().run(zoo[other]).path for other in undone if zoo and other in zoo}
    absent = [other for other in undone if other not in there]
    with tempfile.TemporaryDirectory() as scratch:
        for training in map(workspace.graph.jobs.__getitem__, absent):
            assert isinstance(training, TrainJob), f"{name} cannot be probed before {training.name} is done"
            _untrained_run(training, workspace.environment, Path(scratch) / training.name)
        folders = {other: workspace.folder_of(other) for other in job.after} | there
        folders |= {other: Path(scratch) / other for other in absent}
        ready = read_job(fill(job.settings(), {other: str(folder) for other, folder in folders.items()}))
        if isinstance(ready, TrainJob):
            took, basis = _probe_training(ready, workspace.environment, Path(scratch) / "run", seconds), "measured"
        else:
            assert isinstance(ready, AuditJob)
            model = Path(ready.model)
            if model.is_relative_to(scratch) and not model.exists():  # of a single epoch, as fast as the best
                model.parent.mkdir()
                shutil.copy(TrainingFolder(model.parents[1]).best, model)
            took = _probe_audit(ready, workspace.environment, Path(scratch) / "run", seconds, final=bool(absent))
            basis = "measured, at most" if absent else "measured"
    return Measured(took, peak_megabytes(), basis)


def _untrained_run(job: TrainJob, environment: Environment, folder: Path) -> None:
    """A run folder with the untrained model of a training that has not been done."""
    import numpy as np

    from classwise.data import load as load_data
    from classwise.models import load_model
    from classwise.models.checkpoint import save_checkpoint

    chosen = recipe.load(job.recipe, job.changes)
    images = load_data(chosen.data.name, environment.root, "train", environment.download).without(chosen.data.exclude)
    classes, channels = images.num_classes, images.batch(np.arange(1))[0].shape[1]
    part = chosen.model
    model = load_model(part.spec, num_classes=classes, in_channels=channels, normalize=part.normalize)
    files = TrainingFolder(folder)
    for path in (files.best, files.last):
        save_checkpoint(path, model, part.spec, classes, channels)


def _probe_training(job: TrainJob, environment: Environment, folder: Path, seconds: float) -> float:
    """Set-up, and for every epoch its examples, the validation and the two checkpoints."""
    from classwise.auditing.inputs import default_device
    from classwise.models.check import check_device
    from classwise.training.prepare import examples, network_of, prepare, split_off
    from classwise.training.processes import Processes
    from classwise.training.teachers import teachers_of

    begin = time.perf_counter()
    chosen = recipe.load(job.recipe, job.changes)
    kept, held_out = split_off(chosen, examples(chosen, environment.root, environment.download, None))
    device = default_device() if environment.device is None else check_device(environment.device)
    network = network_of(chosen, None, kept, device)
    folder.mkdir()
    training, start = prepare(
        chosen,
        network,
        kept,
        held_out,
        teachers=teachers_of(chosen, kept, device),
        folder=folder,
        processes=Processes(),
        root=environment.root,
        download=environment.download,
    )
    total, first = time.perf_counter() - begin, 0
    for phase in training.phases:
        start.epoch = (first + phase.until) // 2
        total += (phase.until - first) * _epoch_seconds(training, phase, start.method_state, start.epoch, seconds)
        first = phase.until
    begin = time.perf_counter()
    training.checkpoints.save(training.checkpoints.folder.best, network, start)
    total += 2 * chosen.train.epochs * (time.perf_counter() - begin)
    return total + _validations(training) * _validation_seconds(training, seconds)


def _epoch_seconds(training: Training, phase: PhaseData, state: Any, epoch: int, seconds: float) -> float:
    """The examples of an epoch at the median speed of some steps."""
    batches = phase.source.batches(epoch, phase.batch, training.train_step.recipe.train.seed)
    each: list[float] = []
    spent = 0.0
    for number, examples in enumerate(phase.source.stream(batches[:_STEPS])):
        begin = time.perf_counter()
        if training.train_step.recipe.method.surveys:
            training.train_step.survey(examples, phase.augment, state, epoch)
        training.train_step(examples, phase.augment, state, epoch, number / len(batches), len(examples.y))
        took = time.perf_counter() - begin
        each.append(took / len(examples.y))
        spent += took
        if number and spent > seconds:
            break
    return sum(map(len, batches)) * statistics.median(each[1:] or each)


def _validations(training: Training) -> int:
    """How often the held-out images are attacked."""
    chosen, averaging = training.train_step.recipe, training.averaging
    often = math.ceil(chosen.train.epochs / chosen.validate.every) + chosen.validates_first
    return often + (chosen.train.epochs if averaging is not None and averaging.validates else 0)


def _validation_seconds(training: Training, seconds: float) -> float:
    """One validation, with all steps on all images: untrained weights do not show which images are broken early."""
    from classwise.auditing.prepare import evaluating

    validation, train_step = training.validation, training.train_step
    if validation is None:
        return 0.0
    count, took = 0, 0.0
    for images in _growing_subsets(validation.images):
        part = dataclasses.replace(validation, images=images, protocol="final")
        with evaluating(train_step.model):
            train_step.synced_copy.refresh()
            begin = time.perf_counter()
            part(train_step.model, train_step.synced_copy, lambda attack, finished: None)
        count, took = len(images), time.perf_counter() - begin
        if took > seconds / 4:  # the next would take four times as long
            break
    return len(validation.images) * took / count


def _probe_audit(job: AuditJob, environment: Environment, folder: Path, seconds: float, final: bool) -> float:
    """What does not depend on the number of images, and the attacks' time for all of them."""
    from classwise.auditing.audit import audit_by
    from classwise.auditing.prepare import examples

    begin = time.perf_counter()
    images = examples(job.config(root=environment.root, download=environment.download))
    reading = time.perf_counter() - begin
    changes: dict[str, Any] = dict.fromkeys(_SELECTING) | {"device": environment.device, "progress": False}
    changes |= {"protocol": "final", "coverage": "all"} if final else {}
    fixed = attacked = 0.0
    for some in _growing_subsets(images):
        timing = audit_by(job.config(data=some, out=folder / str(len(some)), **changes)).timing
        spent = sum(cost["seconds"] for cost in timing["attacks"].values())
        fixed, attacked = timing["wall_seconds"] - spent, spent / len(some)
        if spent > seconds / 4:
            break
    return reading + fixed + attacked * len(images)


def _growing_subsets(images: Any) -> Iterator[Any]:
    """Some of the images, then four times as many, up to all of them."""
    count = _FIRST_IMAGES
    while count < len(images):
        yield images.subset(limit=count)
        count *= 4
    yield images


def main(read: Callable[[], str] = sys.stdin.read) -> int:
    """Probe the job that is described on standard input, and print what was measured."""
    order = json.loads(read())
    start = 0.0 if order["begun"] is None else time.time() - order["begun"]
    try:
        workspace = Workspace.of(Path(order["folder"]), order["workspace"])
        measured = probe(workspace, order["name"], order["seconds"], order.get("zoo"))
    except UserError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    print(json.dumps(dataclasses.asdict(measured) | {"seconds": start + measured.seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
