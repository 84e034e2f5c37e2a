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
from classwise import points
from classwise.attacks.clean import Clean
from classwise.attacks.rows import Attack, Model, evaluations, needs_gradient, value_and_gradient
from classwise.datasets.images import Images, IntArray
from classwise.errors import UserError
from classwise.evaluation.active import ActiveSet, Judge, Outcome
from classwise.evaluation.speed import channels_last, out_of_memory, replica, unsettled
from classwise.records import CLEAN, COLUMNS, Array, AttackInfo, Coverage, Meta, Protocol, Records
from classwise.storage import safe_name
from classwise.threat import Norm

_SECONDS_PER_PART = 20.0  # about how much work a kill may cost
_MOST_SECONDS = 300.0  # of a part that is made longer to fill the batches
_FEWEST = 8  # examples that are worth a worker of their own


@dataclass(frozen=True)
class Plan:
    """How the work is cut up. Kept in the run folder, so that a resumed run makes the same batches."""

    batch: int
    part: int
    workers: int = 1


@dataclass(frozen=True)
class Job:
    """Everything an evaluation needs; `fast` proposes, `model` decides.

    eps: one radius per example, for the attacks that have none of their own in `radii`.
    after: the attack whose broken examples an attack starts from, because they are broken for it too: the same attack
        at a smaller radius. Others start from what is misclassified already.
    """

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
    eot: int = 1
    probs: bool = True
    radii: Mapping[str, Array] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    save_adversarial: bool = False
    folder: Path | None = None
    report: Callable[[str, int], None] = field(default=lambda attack, finished: None)

    def standing(self, attack: str) -> bool:
        """Whether the attack sees only what no earlier one has broken."""
        return attack != CLEAN and self.meta.attacks[attack].coverage == "standing"


def plan(fast: Model, example: Tensor, count: int, attacks: Mapping[str, Attack], batch: int, workers: int) -> Plan:
    """Parts of about twenty seconds each, by the measured time of a pass; at least two rounds of batches, unless those
    take minutes."""
    x = channels_last(example)
    differentiate = any(needs_gradient(attack) for attack in attacks.values())

    def one_pass() -> None:
        if differentiate:
            value_and_gradient(fast, x, torch.Tensor.sum)
        else:
            with torch.no_grad():
                fast(x)

    one_pass()  # the first pays for set-up
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        one_pass()
        times.append(time.perf_counter() - begin)
    seconds = min(times) / len(x)  # the quickest is the least disturbed
    whole = max((a.steps * a.restarts * evaluations(a) for a in attacks.values()), default=0)
    passes = whole / 2 + 1  # some examples break early
    at_once = batch * workers
    usual, most = (int(limit / (seconds * passes)) for limit in (_SECONDS_PER_PART, _MOST_SECONDS))
    two_rounds = min(2 * at_once, max(most, 2 * _FEWEST * workers))
    return Plan(batch, min(max(usual // at_once * at_once, two_rounds), count), workers)


def along(job: Job, curve: Mapping[str, float]) -> Job:
    """The job with every attack at every radius of the curve, the smallest radius first.

    What was broken at a smaller radius is broken at a larger one, so each attack goes on from its predecessor.
    """
    attacks: dict[str, Attack] = {}
    infos = {CLEAN: job.meta.attacks[CLEAN]}
    radii: dict[str, Array] = {}
    after: dict[str, str] = {}
    smaller: str | None = None
    for text, eps in curve.items():
        for name, attack in job.attacks.items():
            own = f"{name}@{text}"
            attacks[own], radii[own] = attack, np.full(len(job.images), eps)
            infos[own] = dataclasses.replace(job.meta.attacks[name], eps=eps, family=name)
            if smaller is not None:
                after[own] = f"{name}@{smaller}"
        smaller = text
    meta = dataclasses.replace(job.meta, attacks=infos)
    return dataclasses.replace(job, attacks=attacks, meta=meta, radii=radii, after=after)


def evaluate(job: Job) -> Records:
    """Run every attack of the job on every part of its data; return all rows."""
    attacks: dict[str, Attack] = {CLEAN: Clean(), **job.attacks}
    done: list[Records] = []
    for number, begin in enumerate(range(0, len(job.images), job.plan.part)):
        rows = np.arange(begin, min(begin + job.plan.part, len(job.images)))
        before: dict[str, Records] = {}
        for place, (name, attack) in enumerate(attacks.items()):
            path = None if job.folder is None else job.folder / "records" / part_name(place, name, number)
            records = _finished(path, job.images.positions[rows], complete=not job.standing(name))
            if records is None:
                records = _attack_part(job, name, attack, rows, before, path)
                if path is not None:
                    write_part(records, path)
            else:
                job.report(name, len(rows))
            before[name] = records
        done.extend(before.values())
    return Records.concat(done)


def part_name(place: int, attack: str, number: int) -> str:
    """``01-pgd-20-00003.parquet``: sorts by attack in the order they ran, then by part."""
    return f"{place:02d}-{safe_name(attack)}-{number:05d}.parquet"


def write_part(records: Records, path: Path) -> None:
    """Store the rows of a part; where that fails, an error that says nothing is lost."""
    try:
        records.write(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write {path}: {error.strerror or error}. What was finished before is kept: make room, then "
        "start again with the same command."
    )


def _write_points(job: Job, path: Path, part: Images, outcome: Outcome, keep: IntArray) -> dict[str, float]:
    """Store the points at which the attack itself broke an example, and try them rounded to 8 bits.

    Not of what was misclassified anyway, or broken before by the same attack at a smaller radius.
    """
    assert outcome.points is not None
    clean, exact = part.batch(np.arange(len(part)))[0].cpu().numpy(), outcome.points[keep]
    moved = (exact != clean).reshape(len(exact), -1).any(axis=1)
    found = np.flatnonzero((outcome.columns["prediction"][keep] != part.labels) & moved)
    exact, clean, broken = exact[found], clean[found], part.take(found)
    judge = Judge(job.model, job.norm, job.eot)
    prediction = np.zeros(len(found), np.int64)
    for rows in (
        np.arange(len(found))[begin : begin + job.plan.batch] for begin in range(0, len(found), job.plan.batch)
    ):
        x = (torch.from_numpy(points.rounded(exact[rows])).float() / 255).to(job.device)
        y = torch.from_numpy(broken.labels[rows]).to(job.device)
        prediction[rows] = judge(x, x, y, torch.zeros(len(x), device=job.device))["prediction"].cpu().numpy()
    place = path.parent.parent / "adversarial" / f"{path.stem}.npz"
    try:
        points.write(place, broken.positions, broken.labels, prediction, exact, clean)
    except OSError as error:
        raise cannot_write(place, error) from error
    return {"kept": len(found), "survive_rounding": int((prediction != broken.labels).sum())}


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


def _attack_part(
    job: Job, name: str, attack: Attack, rows: IntArray, before: Mapping[str, Records], path: Path | None
) -> Records:
    part, eps = job.images.take(rows), job.radii.get(name, job.eps)[rows]
    begin = time.perf_counter()
    keeping = job.save_adversarial and name != CLEAN
    outcome = Outcome.empty(part, len(job.meta.class_names), keeping)
    standing = np.ones(len(part), bool)
    if name != CLEAN and job.protocol == "any":
        _inherit(outcome, before[CLEAN], part)
        if name in job.after:
            _inherit(outcome, before[job.after[name]], part)
        standing = ~outcome.done
    if job.standing(name):
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
    if job.standing(name):
        keep = np.sort(places)
    stats = {
        "seconds": seconds,
        "passes": outcome.passes,
        "rejected": outcome.rejected,
        "outside": outcome.outside,
        "attacked": len(places),
    }
    if keeping and path is not None:  # before the rows: a part whose rows are there is complete
        stats |= _write_points(job, path, part.take(keep), outcome, keep)
    return _to_records(job, name, part.take(keep), eps[keep], outcome, keep, stats)


def _inherit(outcome: Outcome, before: Records, part: Images) -> None:
    """Examples that an earlier attack broke inside the ball, or that are misclassified anyway, are broken already."""
    broken = before.take(np.flatnonzero(~before.correct))
    order = np.argsort(part.positions)
    at = order[np.searchsorted(part.positions, broken.index, sorter=order)]
    for column, values in outcome.columns.items():
        values[at] = broken.frame[column].to_numpy()
    if broken.probs is not None:
        outcome.probs[at] = broken.probs
    outcome.done[at] = True


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
            points=None if outcome.points is None else outcome.points.copy(),
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
        fast = replica(job.fast) if workers > 1 else unsettled(job.fast)
        try:
            ActiveSet(attack, fast, judge, part, eps, own, job.protocol, batch, job.meta.seed, job.device, report).run(
                mine
            )
        except BaseException:
            stop.set()
            raise

    workers = min(job.plan.workers, max(len(places) // _FEWEST, 1))
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
