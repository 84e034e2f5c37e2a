"""What a study will cost before it is done: its jobs, and time and memory from a short measured probe of each kind.

A probe is a process of its own with the job's share of threads, so that its memory is its own and it cannot hang:

    training    a few steps of the recipe itself, at the middle of the training; a validation of some held-out images
    audit       all attacks on some of the images; the rest is taken to cost as much
    derived     none: a finished job of the same function, or unknown

Jobs that differ only in seeds, weights, rates and which classes are left out share one probe; where such a job is
finished, the time it took is the estimate. A model that is still to be trained is stood for by untrained weights, which
every attack breaks at once: its audit is measured with all steps on all images, which is the most it can take.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from classwise.errors import UserError
from classwise.studies.frame.engines import Resources
from classwise.studies.frame.graph import Audit, Derive, Job, Train, fill, read_job
from classwise.studies.frame.work import Desk, Place, peak_megabytes
from classwise.training import recipe

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from classwise.training.loop import Stretch, Training

_STEPS = 12  # of the optimiser, at most; the first pays for set-up
_FIRST_IMAGES = 32  # attacked by the first of the probes, each of four times as many as the one before
_SELECTING = ("limit", "per_class", "classes", "split")  # options of an audit that only say which images


@dataclass(frozen=True)
class Measured:
    """Time and memory of a job, and how they are known; nan where they are not."""

    seconds: float
    megabytes: float
    basis: str


@dataclass(frozen=True)
class Totals:
    """What is left to do: one job after the other, with several at once, and the longest chain of jobs."""

    alone: float
    together: float
    chain: float
    megabytes: float
    unknown: int


def estimate(
    desk: Desk, resources: Resources, seconds: float = 3.0, limit: float = 120.0, given: Container[str] = ()
) -> pd.DataFrame:
    """A row for each job: what it waits for, whether it is finished, the time it took or will take, and memory.

    seconds: about how long a probe measures; limit: after which one is given up; given: jobs for which a finished run
    stands. Nothing is written.
    """
    finished = {job.name: about for job in desk.graph if (about := desk.finished(job)) is not None}
    known: dict[str, Measured] = {}
    for name, about in finished.items():
        key = _alike(desk, desk.graph.jobs[name], finished)
        took = Measured(about["seconds"], about["megabytes"], f"as {name} took")
        known[key] = max(known.get(key, took), took, key=lambda measured: measured.seconds)
    rows = []
    for job in desk.graph:
        state = "finished" if job.name in finished else "given" if job.name in given else "to do"
        if state == "given":
            took = Measured(0.0, 0.0, "--use")
        elif state == "finished":
            took = Measured(finished[job.name]["seconds"], finished[job.name]["megabytes"], "took")
        else:
            key = _alike(desk, job, finished)
            if key not in known:
                known[key] = _measure(desk, job, resources, seconds, limit)
            took = known[key]
        about_job = {"job": job.name, "kind": type(job).__name__.lower(), "waits for": ", ".join(sorted(job.after))}
        rows.append({**about_job, "state": state, **dataclasses.asdict(took)})
    return pd.DataFrame(rows)


def totals(frame: pd.DataFrame, jobs: int) -> Totals:
    """The time of all that is to do, with `jobs` at once, each begun as soon as those it waits for are done.

    What is unknown counts as nothing.
    """
    left = frame[frame["state"] == "to do"]
    needed = {row["job"]: float(row["seconds"]) for row in left.to_dict("records")}
    took = {name: 0.0 if math.isnan(value) else value for name, value in needed.items()}
    after = {
        row["job"]: [other for other in row["waits for"].split(", ") if other in took]
        for row in left.to_dict("records")
    }
    chain: dict[str, float] = {}
    for name in took:  # jobs stand in an order in which they can be done
        chain[name] = took[name] + max((chain[other] for other in after[name]), default=0.0)
    return Totals(
        sum(took.values()),
        _schedule(took, after, jobs),
        max(chain.values(), default=0.0),
        float(left["megabytes"].max()) if len(left) else 0.0,
        sum(map(math.isnan, needed.values())),
    )


def _schedule(took: Mapping[str, float], after: Mapping[str, list[str]], jobs: int) -> float:
    """When the last job ends: whenever a place is free, the first job that can begin takes it."""
    waiting, running, done, now = list(took), list[tuple[float, str]](), set[str](), 0.0
    while waiting or running:
        ready = [name for name in waiting if done.issuperset(after[name])]
        for name in ready[: max(jobs, 1) - len(running)]:
            waiting.remove(name)
            heapq.heappush(running, (now + took[name], name))
        now, name = heapq.heappop(running)
        done.add(name)
    return now


def show(frame: pd.DataFrame, resources: Resources, console: Console | None = None) -> None:
    """The jobs as a table, and what all that is left comes to."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    table = Table(box=None, pad_edge=False)
    for column in ("job", "kind", "waits for", "state", "time", "memory", "how it is known"):
        table.add_column(column, justify="right" if column in ("time", "memory") else "left")
    for row in frame.to_dict("records"):
        words = [str(row[column]) for column in ("job", "kind", "waits for", "state")]
        words += [_duration(row["seconds"]), _memory(row["megabytes"]), str(row["basis"])]
        table.add_row(*map(Text, words), style="" if row["state"] == "to do" else "dim")
    console.print(table)
    console.print()
    console.print(Text(sentence(totals(frame, resources.jobs), resources.jobs)))


def sentence(total: Totals, jobs: int) -> str:
    """What is left to do, in words."""
    if not total.alone and not total.unknown:
        return "Everything is finished."
    text = f"About {_duration(total.alone)} one after the other"
    if jobs > 1:
        text += f", {_duration(total.together)} with {jobs} at once (the longest chain takes {_duration(total.chain)})"
    text += "" if math.isnan(total.megabytes) else f"; {_memory(total.megabytes)} of memory for the largest job"
    if total.unknown:
        text += f"; not counted: {total.unknown} jobs of which nothing is known"
    return f"{text}."


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _memory(megabytes: float) -> str:
    return (
        "?" if math.isnan(megabytes) else f"{megabytes / 1024:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
    )


def _alike(desk: Desk, job: Job, finished: Mapping[str, Any]) -> str:
    """What a job's time depends on; jobs with the same text share one measurement."""
    if isinstance(job, Train):
        return json.dumps(["train", _shape_of_training(job)], sort_keys=True, default=str)
    if isinstance(job, Audit):
        training = desk.graph.jobs.get(job.model.partition("}")[0].removeprefix("{"))
        own = isinstance(training, Train) and training.name not in finished
        model = _shape_of_training(training) if own and isinstance(training, Train) else job.model
        options = {key: value for key, value in job.options.items() if key != "seed"}
        return json.dumps(["audit", model, job.data, job.attacks, options], sort_keys=True, default=str)
    assert isinstance(job, Derive)
    return json.dumps(["derive", job.function])


def _shape_of_training(job: Train) -> dict[str, Any]:
    """A recipe without what makes no difference to its speed: seeds, rates, weights, and which classes are left out."""
    parts = recipe.load(job.recipe, job.changes).settings()
    parts["data"]["exclude"] = len(parts["data"]["exclude"])
    parts["train"] |= {"seed": None, "schedule": None, "optimizer": parts["train"]["optimizer"].partition(":")[0]}
    parts["model"]["weights"] = None
    return {
        name: {key: value for key, value in part.items() if isinstance(value, (bool, int, str, tuple, list))}
        for name, part in parts.items()
    }


def _measure(desk: Desk, job: Job, resources: Resources, seconds: float, limit: float) -> Measured:
    """Probe a job in a process of its own."""
    if isinstance(job, Derive):
        return Measured(math.nan, math.nan, "unknown")
    for other in map(desk.graph.jobs.__getitem__, sorted(job.after)):
        if not isinstance(other, Train) and desk.finished(other) is None:
            return Measured(math.nan, math.nan, f"unknown: it reads what {other.name} leaves")
    threads = str(resources.threads)
    folder = str(desk.folder.resolve())
    begun = time.time() if resources.jobs > 1 else None  # then a job is a process, and pays for its start
    order = json.dumps({"folder": folder, "desk": desk.about(), "name": job.name, "seconds": seconds, "begun": begun})
    command = [sys.executable, "-m", "classwise.studies.frame.estimate"]
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    try:
        done = subprocess.run(command, input=order, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return Measured(math.nan, math.nan, f"unknown: not measured within {limit:g} s")
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no word"]
    if done.returncode:
        return Measured(math.nan, math.nan, f"unknown: {lines[-1]}")
    return Measured(**json.loads(lines[-1]))


def probe(desk: Desk, name: str, seconds: float) -> Measured:
    """Measure a training or an audit in this process, whose peak of memory is then the job's."""
    job = desk.graph.jobs[name]
    with tempfile.TemporaryDirectory() as scratch:
        absent = [other for other in sorted(job.after) if desk.finished(desk.graph.jobs[other]) is None]
        for training in map(desk.graph.jobs.__getitem__, absent):
            assert isinstance(training, Train), f"{name} cannot be probed before {training.name} is done"
            _stand_in(training, desk.place, Path(scratch) / training.name)
        folders = {
            other: str(Path(scratch) / other if other in absent else desk.folder_of(other)) for other in job.after
        }
        ready = read_job(fill(job.settings(), folders))
        if isinstance(ready, Train):
            took, basis = _probe_training(ready, desk.place, Path(scratch) / "run", seconds), "measured"
        else:
            assert isinstance(ready, Audit)
            took = _probe_audit(ready, desk.place, Path(scratch) / "run", seconds, final=bool(absent))
            basis = "measured, at most" if absent else "measured"
    return Measured(took, peak_megabytes(), basis)


def _stand_in(job: Train, place: Place, folder: Path) -> None:
    """A run folder with the untrained model of a training that has not been done."""
    import numpy as np

    from classwise import datasets
    from classwise.models import load_model
    from classwise.models.checkpoint import save_checkpoint

    chosen = recipe.load(job.recipe, job.changes)
    images = datasets.load(chosen.data.name, place.root, "train", place.download).without(chosen.data.exclude)
    classes, channels = images.num_classes, images.batch(np.arange(1))[0].shape[1]
    part = chosen.model
    model = load_model(part.spec, num_classes=classes, in_channels=channels, normalize=part.normalize)
    for name in ("best.pt", "last.pt"):
        save_checkpoint(folder / name, model, part.spec, classes, channels)


def _device(place: Place) -> torch.device:
    from classwise.evaluation.inputs import default_device, usable

    return default_device() if place.device is None else usable(place.device)


def _probe_training(job: Train, place: Place, folder: Path, seconds: float) -> float:
    """Set-up, and for every epoch its examples, the validation and the two checkpoints."""
    from classwise.training import train as front_door
    from classwise.training.processes import Processes

    begin = time.perf_counter()
    chosen = recipe.load(job.recipe, job.changes)
    kept, held_out = front_door._split(chosen, front_door._everything(chosen, place.root, place.download, None))
    network = front_door._network(chosen, None, kept, _device(place))
    folder.mkdir()
    training, start = front_door._prepare(
        chosen, network, kept, held_out, folder, Processes(), place.root, place.download
    )
    total, first = time.perf_counter() - begin, 0
    for stretch in training.stretches:
        start.epoch = (first + stretch.until) // 2
        total += (stretch.until - first) * _epoch_seconds(training, stretch, start.state, start.epoch, seconds)
        first = stretch.until
    begin = time.perf_counter()
    training.checkpoints.save("best.pt", network, start)
    total += 2 * chosen.train.epochs * (time.perf_counter() - begin)
    return total + _validations(training) * _validation_seconds(training, seconds)


def _epoch_seconds(training: Training, stretch: Stretch, state: Any, epoch: int, seconds: float) -> float:
    """The examples of an epoch at the middling speed of some steps."""
    batches = stretch.source.batches(epoch, stretch.batch, training.stepper.recipe.train.seed)
    each: list[float] = []
    spent = 0.0
    for number, examples in enumerate(stretch.source.stream(batches[:_STEPS])):
        begin = time.perf_counter()
        training.stepper(examples, stretch.augment, state, epoch, number / len(batches), len(examples.y))
        took = time.perf_counter() - begin
        each.append(took / len(examples.y))
        spent += took
        if number and spent > seconds:
            break
    return sum(map(len, batches)) * statistics.median(each[1:] or each)


def _validations(training: Training) -> int:
    """How often the held-out images are attacked."""
    chosen, averaging = training.stepper.recipe, training.averaging
    often = math.ceil(chosen.train.epochs / chosen.validate.every) + chosen.method.validates_first
    return often + (chosen.train.epochs if averaging is not None and averaging.validates else 0)


def _validation_seconds(training: Training, seconds: float) -> float:
    """One validation, with all steps on all images: the weights of a probe are no measure of who is broken early."""
    from classwise.evaluation.audit import evaluating

    validation, stepper = training.validation, training.stepper
    if validation is None:
        return 0.0
    count, took = 0, 0.0
    for images in _more_and_more(validation.images):
        part = dataclasses.replace(validation, images=images, protocol="final")
        with evaluating(stepper.model):
            stepper.follower.refresh()
            begin = time.perf_counter()
            part(stepper.model, stepper.follower, lambda attack, finished: None)
        count, took = len(images), time.perf_counter() - begin
        if took > seconds / 4:  # the next would take four times as long
            break
    return len(validation.images) * took / count


def _probe_audit(job: Audit, place: Place, folder: Path, seconds: float, final: bool) -> float:
    """What does not depend on the number of images, and the attacks' time for all of them."""
    from classwise.evaluation.audit import audit
    from classwise.evaluation.inputs import images_of

    begin = time.perf_counter()
    options = dict(job.options)
    chosen = {key: options.pop(key) for key in _SELECTING if key in options}
    names = [options.pop(key, None) for key in ("num_classes", "class_names")]
    images = images_of(job.data, place.root, chosen.pop("split", "test"), place.download, *names)
    images = images.subset(**chosen, seed=options.get("seed", 0))
    reading = time.perf_counter() - begin
    if final:
        options |= {"protocol": "final", "coverage": "all"}
    fixed = attacked = 0.0
    for some in _more_and_more(images):
        out = folder / str(len(some))
        timing = audit(
            job.model, some, list(job.attacks), job.eps, out=out, device=place.device, progress=False, **options
        ).timing
        spent = sum(cost["seconds"] for cost in timing["attacks"].values())
        fixed, attacked = timing["wall_seconds"] - spent, spent / len(some)
        if spent > seconds / 4:
            break
    return reading + fixed + attacked * len(images)


def _more_and_more(images: Any) -> Iterator[Any]:
    """Some of the images, then four times as many, up to all of them."""
    count = _FIRST_IMAGES
    while count < len(images):
        yield images.subset(limit=count)
        count *= 4
    yield images


def main(read: Callable[[], str] = sys.stdin.read) -> int:
    """Probe the job that standard input tells of, and print what was measured."""
    order = json.loads(read())
    start = 0.0 if order["begun"] is None else time.time() - order["begun"]
    try:
        measured = probe(Desk.of(Path(order["folder"]), order["desk"]), order["name"], order["seconds"])
    except UserError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    print(json.dumps(dataclasses.asdict(measured) | {"seconds": start + measured.seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
