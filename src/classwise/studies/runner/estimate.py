"""The cost of a study before it is run: its jobs, and time and memory from a short probe of each kind (`probe`).

Probes share a budget of time. Once it is spent, the rest is counted in operations (`cost`). Jobs
that differ only in seeds, weights, rates and which classes are left out share one probe; if such a job is finished,
the time it took is the estimate.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from classwise.core import spec
from classwise.core.format import duration, memory
from classwise.core.run_folder import TrainingFolder
from classwise.dispatch import Resources
from classwise.models.zoo import PREFIX
from classwise.studies.runner.graph import AuditJob, DeriveJob, StudyJob, TrainJob
from classwise.studies.runner.probe import Measured
from classwise.studies.runner.work import Workspace
from classwise.training import recipe

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

_UNKNOWN = Measured(math.nan, math.nan, "unknown")
_COUNTED = "counted"


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The remaining time: one job after the other, several at once, and the longest chain of jobs."""

    alone: float
    together: float
    chain: float
    megabytes: float
    unknown: int


def estimate(
    workspace: Workspace,
    resources: Resources,
    seconds: float = 3.0,
    limit: float = 120.0,
    given: Container[str] = (),
    budget: float = math.inf,
    count: Callable[[StudyJob], float | None] = lambda job: None,
    zoo: Mapping[str, str] | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> pd.DataFrame:
    """A row for each job: what it waits for, whether it is finished, the time it took or will take, and memory.

    seconds: about how long a probe measures; limit: its timeout; given: jobs replaced by a finished run (--use);
    budget: seconds for all probes together; count: seconds of a job that was not measured, None where they
    cannot be counted; zoo:
    trainings that are taken from it, and their names there; watch: called with
    the name of each job that is probed. Nothing is written.
    """
    finished = {job.name: about for job in workspace.graph if (about := workspace.finished(job)) is not None}
    known: dict[str, Measured] = {}
    for name, about in finished.items():
        if "zoo" in about:
            continue
        key = _cost_key(workspace, workspace.graph.jobs[name], finished)
        took = Measured(about["seconds"], about["megabytes"], f"as {name} took")
        known[key] = max(known.get(key, took), took, key=lambda measured: measured.seconds)
    rows = []
    end = time.monotonic() + budget
    for job in workspace.graph:
        entry = (zoo or {}).get(job.name)
        state = "finished" if job.name in finished else "given" if job.name in given else "in zoo" if entry else "to do"
        if state in ("given", "in zoo"):
            took = Measured(0.0, 0.0, "--use" if entry is None or job.name in given else PREFIX + entry)
        elif state == "finished":
            took = Measured(finished[job.name]["seconds"], finished[job.name]["megabytes"], "took")
        else:
            key = _cost_key(workspace, job, {**finished, **(zoo or {})})
            left = end - time.monotonic()
            if key not in known and left > 0:
                watch(job.name)
                known[key] = _measure(workspace, job, resources, seconds, min(limit, left), zoo)
            took = known.get(key, _UNKNOWN)
            if math.isnan(took.seconds) and (guess := count(job)) is not None:
                took = Measured(guess, math.nan, _COUNTED)
        about_job = {"job": job.name, "kind": job.kind, "waits for": ", ".join(sorted(job.after))}
        rows.append({**about_job, "state": state, **dataclasses.asdict(took)})
    return pd.DataFrame(rows)


def totals(frame: pd.DataFrame, jobs: int) -> Totals:
    """The time of all remaining jobs, with `jobs` at once, each started as soon as those it waits for are done.

    Unknown times count as 0.
    """
    left = frame[frame["state"] == "to do"]
    took = dict(zip(left["job"], left["seconds"].fillna(0.0), strict=True))
    waits = zip(left["job"], left["waits for"], strict=True)
    after = {name: [other for other in text.split(", ") if other in took] for name, text in waits}
    chain: dict[str, float] = {}
    for name in took:  # jobs are in an order in which they can be done
        chain[name] = took[name] + max((chain[other] for other in after[name]), default=0.0)
    return Totals(
        alone=sum(took.values()),
        together=_schedule(took, after, jobs),
        chain=max(chain.values(), default=0.0),
        megabytes=float(left["megabytes"].max()) if len(left) else 0.0,
        unknown=int(left["seconds"].isna().sum()),
    )


def _schedule(took: Mapping[str, float], after: Mapping[str, list[str]], jobs: int) -> float:
    """When the last job ends, if every free slot is given to the first job that can start."""
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
    """The jobs as a table, and the total of what is left."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    table = Table(box=None, pad_edge=False)
    front = ("job", "kind", "waits for", "state")
    narrowest = {"job": 22, "waits for": 9, "basis": 9}  # what is longer is broken into lines, never cut
    for column in (*front, "time", "memory", "basis"):
        justify: JustifyMethod = "right" if column in ("time", "memory") else "left"
        short, least = column not in narrowest, narrowest.get(column)
        table.add_column(column, justify=justify, no_wrap=short, min_width=least, overflow="fold")
    for row in frame.to_dict("records"):
        words = [*(row[column] for column in front), duration(row["seconds"]), memory(row["megabytes"]), row["basis"]]
        table.add_row(*map(Text, words), style="" if row["state"] == "to do" else "dim")
    console.print(table)
    console.print()
    console.print(Text(sentence(totals(frame, resources.jobs), resources.jobs)))
    if (frame["basis"] == _COUNTED).any():
        console.print(Text("Counted times are good to a factor of two."), style="dim")


def sentence(total: Totals, jobs: int) -> str:
    """What is left to do, as a sentence."""
    if not total.alone and not total.unknown:
        return "Everything is finished."
    text = f"About {duration(total.alone)} one after the other"
    if jobs > 1:
        text += f", {duration(total.together)} with {jobs} at once (the longest chain takes {duration(total.chain)})"
    text += "" if math.isnan(total.megabytes) else f"; {memory(total.megabytes)} of memory for the largest job"
    if total.unknown:
        text += f"; not counted: {total.unknown} jobs of unknown cost"
    return f"{text}."


def _cost_key(workspace: Workspace, job: StudyJob, finished: Mapping[str, Any]) -> str:
    """What a job's time depends on; jobs with the same key share one measurement."""
    if isinstance(job, TrainJob):
        return json.dumps(["train", _shape_of_training(job)], sort_keys=True, default=str)
    if isinstance(job, AuditJob):
        training = workspace.graph.training_of(job.model)
        untrained = training is not None and training.name not in finished
        model = _shape_of_training(training) if training and untrained else _any_epoch(job.model)
        options = {key: value for key, value in job.options.items() if key != "seed"}
        return json.dumps(["audit", model, _shape_of_data(job.data), job.attacks, options], sort_keys=True, default=str)
    assert isinstance(job, DeriveJob)
    return json.dumps(["derive", job.function])


def _any_epoch(model: str) -> str:
    """The model after any epoch of a training is as fast as the best one."""
    path = Path(model)
    return str(TrainingFolder(path.parents[1]).best) if isinstance(TrainingFolder.which(path), int) else model


def _shape_of_data(data: str) -> list[Any]:
    """A data set with the number of classes that are left out instead of their names."""
    name, options = spec.split(data)
    excluded = {"exclude": len(spec.items(options["exclude"], older=r"\|"))} if "exclude" in options else {}
    return [name, options | excluded]


def _shape_of_training(job: TrainJob) -> dict[str, Any]:
    """A recipe without what does not affect its speed: seeds, rates, weights, and which classes are left out."""
    parts = recipe.load(job.recipe, job.changes).settings()
    parts["data"]["exclude"] = len(parts["data"]["exclude"])
    optimizer = parts["train"]["optimizer"].partition(":")[0]
    parts["train"] |= {"seed": None, "schedule": None, "keep": None, "optimizer": optimizer}
    parts["model"]["weights"] = None
    return {
        name: {key: value for key, value in part.items() if isinstance(value, (bool, int, str, tuple, list))}
        for name, part in parts.items()
    }


def _measure(
    workspace: Workspace,
    job: StudyJob,
    resources: Resources,
    seconds: float,
    limit: float,
    zoo: Mapping[str, str] | None = None,
) -> Measured:
    """Probe a job in a separate process."""
    if isinstance(job, DeriveJob):
        return _UNKNOWN
    for other in map(workspace.graph.jobs.__getitem__, sorted(job.after)):
        if not isinstance(other, TrainJob) and workspace.finished(other) is None:
            return Measured(math.nan, math.nan, f"unknown: it reads the files of {other.name}")
    threads = str(resources.threads)
    folder = str(workspace.folder.resolve())
    begun = time.time() if resources.jobs > 1 else None  # then a job is a process, and its start counts
    what = {"workspace": workspace.about(), "name": job.name, "zoo": {**(zoo or {})}}
    order = json.dumps({"folder": folder, **what, "seconds": seconds, "begun": begun})
    command = [sys.executable, "-m", "classwise.studies.runner.probe"]
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    try:
        done = subprocess.run(command, input=order, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return Measured(math.nan, math.nan, f"unknown: not measured within {duration(limit)}")
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no output"]
    if done.returncode:
        return Measured(math.nan, math.nan, f"unknown: {lines[-1]}")
    return Measured(**json.loads(lines[-1]))
