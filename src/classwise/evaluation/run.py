"""model + data + attacks → Records, part by part.

The data is cut into parts; each part is attacked by every attack in turn and its rows are written at once, whole or
not at all. A finished part is never computed again, so a run that was killed goes on where it was. The plan (batch
and part size) is fixed when a run begins and kept with it: a resumed run makes the same batches and so the same rows.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from classwise import attacks as attack_files
from classwise.attacks.clean import Clean
from classwise.attacks.rows import Attack, Model, value_and_gradient
from classwise.datasets.images import Images, IntArray
from classwise.errors import UserError
from classwise.evaluation.active import ActiveSet, Judge, Outcome
from classwise.evaluation.speed import channels_last, out_of_memory, replica
from classwise.records import CLEAN, COLUMNS, Array, AttackInfo, Coverage, Meta, Protocol, Records, safe_name
from classwise.threat import Norm

_SECONDS_PER_PART = 20.0  # about how much work a kill may cost


@dataclass(frozen=True)
class Plan:
    """How the work is cut up. Kept in the run folder, so that a resumed run makes the same batches."""

    batch: int
    part: int
    workers: int = 1


@dataclass(frozen=True)
class Job:
    """Everything an evaluation needs. `eps` holds one radius per example; `fast` proposes, `model` decides."""

    model: nn.Module | Model
    fast: Model
    images: Images
    attacks: Mapping[str, Attack]
    norm: Norm
    eps: Array
    meta: Meta
    plan: Plan
    device: torch.device
    protocol: Protocol = "any"
    coverage: Coverage = "all"
    eot: int = 1
    probs: bool = True
    folder: Path | None = None
    report: Callable[[str, int], None] = field(default=lambda attack, finished: None)


def plan(fast: Model, example: Tensor, count: int, attacks: Mapping[str, Attack], batch: int, workers: int) -> Plan:
    """Parts of about twenty seconds each, by the measured time of a gradient pass; at least two rounds of batches."""
    x = channels_last(example)
    value_and_gradient(fast, x, torch.Tensor.sum)  # the first pass pays for set-up
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        value_and_gradient(fast, x, torch.Tensor.sum)
        times.append(time.perf_counter() - begin)
    seconds = min(times) / len(x)  # the quickest is the least disturbed
    passes = max((attack.steps * attack.restarts for attack in attacks.values()), default=0) / 2 + 1
    whole = batch * workers
    rounds = max(int(_SECONDS_PER_PART / (seconds * passes * whole)), 2)
    return Plan(batch, min(rounds * whole, count), workers)


def evaluate(job: Job) -> Records:
    """Run every attack of the job on every part of its data; return all rows."""
    attacks: dict[str, Attack] = {CLEAN: Clean(), **job.attacks}
    done: list[Records] = []
    for number, begin in enumerate(range(0, len(job.images), job.plan.part)):
        rows = np.arange(begin, min(begin + job.plan.part, len(job.images)))
        before: dict[str, Records] = {}
        for place, (name, attack) in enumerate(attacks.items()):
            path = None if job.folder is None else job.folder / "records" / part_name(place, name, number)
            complete = name == CLEAN or job.coverage == "all"
            records = _finished(path, job.images.positions[rows], complete)
            if records is None:
                records = _attack_part(job, name, attack, rows, before)
                if path is not None:
                    _write(records, path)
            else:
                job.report(name, len(rows))
            before[name] = records
        done.extend(before.values())
    return Records.concat(done)


def part_name(place: int, attack: str, number: int) -> str:
    """``01-pgd-20-00003.parquet``: sorts by attack in the order they ran, then by part."""
    return f"{place:02d}-{safe_name(attack)}-{number:05d}.parquet"


def _write(records: Records, path: Path) -> None:
    try:
        records.write(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}. What was finished before is kept: make room, then "
            "start again with the same command."
        ) from error


def _finished(path: Path | None, index: IntArray, complete: bool) -> Records | None:
    """The part as an earlier run left it; None if it is not there, not readable, or not of these examples."""
    if path is None or not path.exists():
        return None
    try:
        records = Records.read(path)
    except UserError:
        return None  # damaged on disk: computed again and written over
    fits = np.array_equal(records.index, index) if complete else np.isin(records.index, index).all()
    return records if fits else None


def _attack_part(job: Job, name: str, attack: Attack, rows: IntArray, before: Mapping[str, Records]) -> Records:
    part, eps = job.images.take(rows), job.eps[rows]
    begin = time.perf_counter()
    outcome = Outcome.empty(part, len(job.meta.class_names))
    standing = np.ones(len(part), bool)
    if name != CLEAN and job.protocol == "any":
        _inherit(outcome, before[CLEAN], part)
        standing = ~outcome.done
    if name != CLEAN and job.coverage == "standing":
        for earlier in before.values():
            broken = earlier.index[~earlier.correct]
            standing &= ~np.isin(part.positions, broken)
    job.report(name, int((~standing).sum()))
    places = np.flatnonzero(standing)
    if name != CLEAN:  # the hardest to break first: workers get equal shares, and batches empty quickly at the end
        places = places[np.argsort(before[CLEAN].frame["loss"].to_numpy()[places], kind="stable")]
    if places.size:
        outcome = _with_room(job, attack, part, eps, outcome, places, name)
    seconds = time.perf_counter() - begin
    keep = np.arange(len(part))
    if name != CLEAN and job.coverage == "standing":
        keep = places
    stats = {
        "seconds": seconds,
        "passes": outcome.passes,
        "rejected": outcome.rejected,
        "outside": outcome.outside,
        "attacked": len(places),
    }
    return _to_records(job, name, part.take(keep), eps[keep], outcome, keep, stats)


def _inherit(outcome: Outcome, clean: Records, part: Images) -> None:
    """Already misclassified examples are broken by the clean image itself, at distance and step 0."""
    assert (clean.index == part.positions).all()
    wrong = np.flatnonzero(~clean.correct)
    for column in ("prediction", "confidence", "true_prob", "loss"):
        outcome.columns[column][wrong] = clean.frame[column].to_numpy()[wrong]
    if clean.probs is not None:
        outcome.probs[wrong] = clean.probs[wrong]
    outcome.done[wrong] = True


def _with_room(
    job: Job, attack: Attack, part: Images, eps: Array, outcome: Outcome, places: IntArray, name: str
) -> Outcome:
    """Attack the given places; when memory runs out, again with half the batch."""
    batch = job.plan.batch
    while True:
        attempt = dataclasses.replace(
            outcome,
            columns={key: column.copy() for key, column in outcome.columns.items()},
            probs=outcome.probs.copy(),
            done=outcome.done.copy(),
        )
        reported = 0

        def report(attack: str, finished: int) -> None:
            nonlocal reported
            reported += finished
            job.report(attack, finished)

        try:
            _share_out(dataclasses.replace(job, report=report), attack, part, eps, attempt, places, name, batch)
            return attempt
        except Exception as error:
            if not out_of_memory(error):
                raise
            if batch == 1:
                raise UserError("out of memory with a batch of 1; use a smaller model or another device.") from error
            batch //= 2
            job.report(name, -reported)
        if job.device.type == "cuda":  # here, where the exception no longer holds on to the tensors of its frames
            torch.cuda.empty_cache()


def _share_out(
    job: Job, attack: Attack, part: Images, eps: Array, outcome: Outcome, places: IntArray, name: str, batch: int
) -> None:
    """Deal the places out to the workers, each with an active set of its own."""
    stop, lock = threading.Event(), threading.Lock()

    def report(finished: int) -> None:
        if stop.is_set():
            raise InterruptedError("another worker failed")
        with lock:
            job.report(name, finished)

    def work(mine: IntArray, own: Outcome) -> None:
        judge = Judge(replica(job.model) if workers > 1 else job.model, job.norm, job.eot)
        fast = replica(job.fast) if workers > 1 else job.fast
        try:
            ActiveSet(attack, fast, judge, part, eps, own, job.protocol, batch, job.meta.seed, job.device, report).run(
                mine
            )
        except BaseException:
            stop.set()
            raise

    workers = min(job.plan.workers, -(-len(places) // batch))
    shares = [dataclasses.replace(outcome) for _ in range(workers)]  # the same arrays, counters of their own
    if workers == 1:
        work(places, shares[0])
    else:
        with (
            _threads_each(workers) as each,
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(each,)) as pool,
        ):
            futures = [pool.submit(work, places[number::workers], share) for number, share in enumerate(shares)]
            try:
                for future in futures:
                    if (error := future.exception()) and not isinstance(error, InterruptedError):
                        raise error
            except BaseException:
                stop.set()
                raise
    for share in shares:
        outcome.passes += share.passes
        outcome.rejected += share.rejected
        outcome.outside += share.outside


@contextmanager
def _threads_each(workers: int) -> Iterator[int]:
    """Each worker's share of torch's threads; the process-wide setting is put back at the end."""
    threads = torch.get_num_threads()
    try:
        yield max(threads // workers, 1)
    finally:
        torch.set_num_threads(threads)


def _to_records(
    job: Job, name: str, part: Images, eps: Array, outcome: Outcome, keep: IntArray, stats: Mapping[str, float]
) -> Records:
    radius = np.zeros(len(part)) if name == CLEAN else eps
    columns: dict[str, Any] = {"index": part.positions, "label": part.labels, "attack": name, "eps": radius}
    columns |= {key: column[keep] for key, column in outcome.columns.items()}
    # The types they are stored in, so that a part just computed and one read back are equal to the last bit.
    types = {key: COLUMNS[key].to_pandas_dtype() for key in columns if key != "attack"}
    frame = pd.DataFrame(columns).astype(types)
    return Records(
        frame, dataclasses.replace(job.meta, stats={name: stats}), outcome.probs[keep] if job.probs else None
    )


def attack_infos(attacks: Mapping[str, Attack], protocol: Protocol, coverage: Coverage) -> dict[str, AttackInfo]:
    """The metadata of a run's attacks, clean first."""
    infos = {CLEAN: AttackInfo({}, protocol, "all")}
    for name, attack in attacks.items():
        own = json.loads(json.dumps(attack_files.settings(attack), default=str))  # a field may hold any object
        infos[name] = AttackInfo({"name": type(attack).__module__.rpartition(".")[2], **own}, protocol, coverage)
    return infos
