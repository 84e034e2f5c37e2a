"""model + data + attacks → Records, part by part.

The data is cut into parts; each part is attacked by every attack in turn and its rows are written at once, whole or
not at all. A finished part is never computed again, so a run that was killed resumes where it stopped. The plan (batch
and part size) is fixed when a run begins and kept with it: a resumed run makes the same batches and so the same rows.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from classwise.attacks.clean import Clean
from classwise.core import adversarial_examples
from classwise.core.errors import UserError
from classwise.core.meta import Part
from classwise.core.records import CLEAN, COLUMNS, Array, Records, digest
from classwise.core.run_folder import AuditFolder
from classwise.data.images import Images, IntArray
from classwise.engine.active_set import ActiveSet
from classwise.engine.attack_result import AttackResult
from classwise.engine.decoded import decoded
from classwise.engine.evaluation import Evaluation
from classwise.engine.verifier import Verifier
from classwise.engine.workers import attack_places


@dataclass(frozen=True, kw_only=True)
class _Task:
    """One attack on one part of the data: the part's number and rows, what the attacks before it found there, and the
    file for its own rows."""

    evaluation: Evaluation
    name: str
    number: int
    rows: IntArray
    before: Mapping[str, Records]
    path: Path | None

    @property
    def keeps_points(self) -> bool:
        return self.evaluation.save_adversarial and self.name != CLEAN

    @property
    def verifier(self) -> Verifier:
        return Verifier(self.evaluation.model, self.evaluation.threat.ball, self.evaluation.eot)


def evaluate(evaluation: Evaluation) -> Records:
    """Run every attack of the evaluation on every part of its data; return all rows, attack by attack, in the order of
    the examples."""
    parts = [evaluate_part(evaluation, number) for number in evaluation.parts]
    whole = Records.concat([records for part in parts for records in part.values()])
    if len(parts) == 1:
        return whole
    places = {position: row for row, position in enumerate(evaluation.images.positions.tolist())}
    names = {name: place for place, name in enumerate((CLEAN, *evaluation.attacks))}
    rows = np.array([places[position] for position in whole.index.tolist()])
    return whole.take(np.lexsort((rows, whole.frame["attack"].map(names).to_numpy())))


def is_finished(evaluation: Evaluation, number: int) -> bool:
    """Whether an earlier run left all rows of a part."""
    before: dict[str, Records] = {}
    for task in _tasks(evaluation, number, before):
        if (records := _finished(task)) is None:
            return False
        before[task.name] = records
    return True


def _tasks(evaluation: Evaluation, number: int, before: Mapping[str, Records]) -> Iterator[_Task]:
    """The attacks on one part, one after the other; `before` grows meanwhile."""
    rows = evaluation.plan.rows(number, evaluation.images.labels)
    for place, name in enumerate((CLEAN, *evaluation.attacks)):
        path = None if evaluation.folder is None else evaluation.folder.part(place, name, number)
        yield _Task(evaluation=evaluation, name=name, number=number, rows=rows, before=dict(before), path=path)


def evaluate_part(evaluation: Evaluation, number: int) -> dict[str, Records]:
    """The rows of one part by attack: those that an earlier run left, and the others computed and stored."""
    before: dict[str, Records] = {}
    with decoded(evaluation.images.take(evaluation.plan.rows(number, evaluation.images.labels))) as part:
        for task in _tasks(evaluation, number, before):
            records = _finished(task)
            if records is None:
                records = _attack_part(task, part)
                if task.path is not None:
                    write_part(records, task.path)
            else:
                evaluation.report(task.name, len(part))
            before[task.name] = records
    return before


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


def _finished(task: _Task) -> Records | None:
    """The part as an earlier run left it; None, so that it is computed again, if it is not there, damaged, or not of
    exactly the examples that this part is about."""
    evaluation, name, path = task.evaluation, task.name, task.path
    if path is None or not path.exists():
        return None
    try:
        records = Records.read(path)
    except UserError:
        return None
    covered = evaluation.images.positions[task.rows]
    shown = covered[_survivors(covered, task.before)] if evaluation.only_survivors(name) else covered
    stated = Part(name, task.number, digest(covered))
    part = records.meta.part or stated  # written before parts said what they are
    fits = (
        dataclasses.replace(part, points=None) == stated
        and np.array_equal(records.index, shown)
        and (records.frame["attack"] == name).all()
        and records.class_names == evaluation.meta.class_names
        and (records.probs is not None) == evaluation.probs
        and (not task.keeps_points or adversarial_examples.intact(AuditFolder.images_of(path), part.points))
    )
    # Files written before the order of the attacks was kept have it sorted.
    ordered = dataclasses.replace(records.meta, attacks=evaluation.meta.attacks)
    return dataclasses.replace(records, meta=ordered) if fits else None


def _survivors(positions: IntArray, before: Mapping[str, Records]) -> Array:
    """Which examples no earlier attack has broken."""
    survives = np.ones(len(positions), bool)
    for earlier in before.values():
        survives &= ~np.isin(positions, earlier.index[~earlier.correct])
    return survives


def _attack_part(task: _Task, part: Images) -> Records:
    evaluation, name, begin = task.evaluation, task.name, time.perf_counter()
    eps = np.zeros(len(part)) if name == CLEAN else evaluation.radii.get(name, evaluation.eps)[task.rows]
    outcome = AttackResult.empty(part, len(evaluation.meta.class_names), task.keeps_points, evaluation.probs)
    places = _places(task, part, outcome)
    evaluation.report(name, len(part) - len(places))
    if places.size:
        active = ActiveSet(
            attack=Clean() if name == CLEAN else evaluation.attacks[name],
            attack_copy=evaluation.attack_copy,
            verifier=task.verifier,
            part=part,
            eps=eps,
            outcome=outcome,
            protocol=evaluation.protocol,
            batch=evaluation.plan.batch,
            seed=evaluation.meta.seed,
            device=evaluation.device,
            report=functools.partial(evaluation.report, name),
        )
        outcome = attack_places(active, places, evaluation.plan.workers)
    counts = {count: getattr(outcome, count) for count in ("passes", "rejected", "outside")}
    stats = {"seconds": time.perf_counter() - begin, **counts, "attacked": len(places)}
    keep = np.sort(places) if evaluation.only_survivors(name) else np.arange(len(part))
    part, points = part.take(keep), None
    if task.keeps_points and task.path is not None:  # before the rows: a part whose rows are there is complete
        kept, points = _write_points(task, task.path, part, outcome, keep)
        stats |= kept
    about = Part(name, task.number, digest(evaluation.images.positions[task.rows]), points)
    columns: dict[str, Any] = {"index": part.positions, "label": part.labels, "attack": name, "eps": eps[keep]}
    columns |= {key: column[keep] for key, column in outcome.columns.items()}
    # The types they are stored in, so that a part just computed and one read back are equal to the last bit.
    frame = pd.DataFrame(columns).astype({key: COLUMNS[key].to_pandas_dtype() for key in columns if key != "attack"})
    meta = dataclasses.replace(evaluation.meta, stats={name: stats}, part=about)
    return Records(frame, meta, None if outcome.probs is None else outcome.probs[keep])


def _places(task: _Task, part: Images, outcome: AttackResult) -> IntArray:
    """The examples to attack; what is broken already, where any point that breaks it counts, gets its outcome."""
    evaluation, name, before = task.evaluation, task.name, task.before
    if name == CLEAN:
        return np.arange(len(part))
    if evaluation.protocol == "any":
        _inherit(outcome, before[CLEAN], part)
        if name in evaluation.after:
            _inherit(outcome, before[evaluation.after[name]], part)
    attacked = ~outcome.done
    if evaluation.only_survivors(name):
        attacked &= _survivors(part.positions, before)
    places = np.flatnonzero(attacked)
    # The hardest to break first: workers get equal shares, and batches empty quickly at the end.
    return places[np.argsort(before[CLEAN].frame["loss"].to_numpy()[places], kind="stable")]


def _inherit(outcome: AttackResult, before: Records, part: Images) -> None:
    """Examples that an earlier attack broke inside the ball, or that are misclassified anyway, are broken already."""
    broken = before.take(np.flatnonzero(~before.correct))
    order = np.argsort(part.positions)
    at = order[np.searchsorted(part.positions, broken.index, sorter=order)]
    for column, values in outcome.columns.items():
        values[at] = broken.frame[column].to_numpy()
    if broken.probs is not None and outcome.probs is not None:
        outcome.probs[at] = broken.probs
    outcome.done[at] = True


def _write_points(
    task: _Task, path: Path, part: Images, outcome: AttackResult, keep: IntArray
) -> tuple[dict[str, float], str]:
    """Store the points at which the attack itself broke an example, and try them rounded to 8 bits; return how many
    there are and the file's digest.

    Not of what was misclassified anyway, or broken before by the same attack at a smaller radius.
    """
    assert outcome.points is not None
    name, device, batch = task.name, task.evaluation.device, task.evaluation.plan.batch
    clean, exact = part.batch(np.arange(len(part)))[0].cpu().numpy(), outcome.points[keep]
    moved = (exact != clean).reshape(len(exact), -1).any(axis=1)
    found = np.flatnonzero((outcome.columns["prediction"][keep] != part.labels) & moved)
    exact, clean, broken = exact[found], clean[found], part.take(found)
    prediction = np.zeros(len(found), np.int64)
    for rows in (slice(begin, begin + batch) for begin in range(0, len(found), batch)):
        x = (torch.from_numpy(adversarial_examples.rounded(exact[rows])).float() / 255).to(device)
        y = torch.from_numpy(broken.labels[rows]).to(device)
        prediction[rows] = task.verifier(x, x, y, torch.zeros(len(x), device=device))["prediction"].cpu().numpy()
    place = AuditFolder.images_of(path)
    try:
        written = adversarial_examples.write(
            place, name, index=broken.positions, label=broken.labels, prediction=prediction, exact=exact, clean=clean
        )
    except OSError as error:
        raise cannot_write(place, error) from error
    return {"kept": len(found), "survive_rounding": int((prediction != broken.labels).sum())}, written
