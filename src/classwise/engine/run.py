"""model + data + attacks → Records, part by part.

The data is cut into parts; each part is attacked by every attack in turn and its rows are written at once, whole or
not at all. A finished part is never computed again, so a run that was killed resumes where it stopped. The plan (batch
and part size) is fixed when a run begins and kept with it: a resumed run makes the same batches and so the same rows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from classwise.attacks.attack import Attack
from classwise.attacks.clean import Clean
from classwise.core import adversarial_examples
from classwise.core.errors import UserError
from classwise.core.meta import Meta, Part
from classwise.core.records import CLEAN, COLUMNS, Array, Records, digest
from classwise.core.run_folder import AuditFolder
from classwise.data.images import Images, IntArray
from classwise.engine.active_set import AttackResult, Verifier
from classwise.engine.evaluation import Evaluation
from classwise.engine.workers import attack_places


def evaluate(evaluation: Evaluation) -> Records:
    """Run every attack of the evaluation on every part of its data; return all rows."""
    attacks: dict[str, Attack] = {CLEAN: Clean(), **evaluation.attacks}
    done: list[Records] = []
    for number, begin in enumerate(range(0, len(evaluation.images), evaluation.plan.part)):
        rows = np.arange(begin, min(begin + evaluation.plan.part, len(evaluation.images)))
        before: dict[str, Records] = {}
        for place, (name, attack) in enumerate(attacks.items()):
            path = None if evaluation.folder is None else evaluation.folder.part(place, name, number)
            records = None if path is None else _finished(evaluation, name, number, rows, before, path)
            if records is None:
                records = _attack_part(evaluation, name, attack, number=number, rows=rows, before=before, path=path)
                if path is not None:
                    write_part(records, path)
            else:
                evaluation.report(name, len(rows))
            before[name] = records
        done.extend(before.values())
    return Records.concat(done)


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


def _write_points(
    evaluation: Evaluation, name: str, path: Path, part: Images, outcome: AttackResult, keep: IntArray
) -> tuple[dict[str, float], str]:
    """Store the points at which the attack itself broke an example, and try them rounded to 8 bits; return how many
    there are and the file's digest.

    Not of what was misclassified anyway, or broken before by the same attack at a smaller radius.
    """
    assert outcome.points is not None
    clean, exact = part.batch(np.arange(len(part)))[0].cpu().numpy(), outcome.points[keep]
    moved = (exact != clean).reshape(len(exact), -1).any(axis=1)
    found = np.flatnonzero((outcome.columns["prediction"][keep] != part.labels) & moved)
    exact, clean, broken = exact[found], clean[found], part.take(found)
    verifier = Verifier(evaluation.model, evaluation.threat.ball, evaluation.eot)
    prediction = np.zeros(len(found), np.int64)
    for rows in (
        np.arange(len(found))[begin : begin + evaluation.plan.batch]
        for begin in range(0, len(found), evaluation.plan.batch)
    ):
        x = (torch.from_numpy(adversarial_examples.rounded(exact[rows])).float() / 255).to(evaluation.device)
        y = torch.from_numpy(broken.labels[rows]).to(evaluation.device)
        prediction[rows] = verifier(x, x, y, torch.zeros(len(x), device=evaluation.device))["prediction"].cpu().numpy()
    place = AuditFolder.images_of(path)
    try:
        written = adversarial_examples.write(
            place, name, index=broken.positions, label=broken.labels, prediction=prediction, exact=exact, clean=clean
        )
    except OSError as error:
        raise cannot_write(place, error) from error
    return {"kept": len(found), "survive_rounding": int((prediction != broken.labels).sum())}, written


def _finished(
    evaluation: Evaluation, name: str, number: int, rows: IntArray, before: Mapping[str, Records], path: Path
) -> Records | None:
    """The part as an earlier run left it; None, so that it is computed again, if it is not there, damaged, or not of
    exactly the examples that this part is about."""
    if not path.exists():
        return None
    try:
        records = Records.read(path)
    except UserError:
        return None
    covered = evaluation.images.positions[rows]
    shown = covered[_survivors(covered, before)] if evaluation.only_survivors(name) else covered
    part = records.meta.part or Part(name, number, digest(covered))  # written before parts said what they are
    fits = (
        (part.attack, part.number, part.covers) == (name, number, digest(covered))
        and np.array_equal(records.index, shown)
        and (records.frame["attack"] == name).all()
        and records.class_names == evaluation.meta.class_names
        and (records.probs is not None) == evaluation.probs
    )
    if fits and evaluation.save_adversarial and name != CLEAN:
        fits = adversarial_examples.intact(AuditFolder.images_of(path), part.points)
    # Files written before the order of the attacks was kept have it sorted.
    ordered = dataclasses.replace(records.meta, attacks=evaluation.meta.attacks)
    return dataclasses.replace(records, meta=ordered) if fits else None


def _survivors(positions: IntArray, before: Mapping[str, Records]) -> Array:
    """Which examples no earlier attack has broken."""
    survives = np.ones(len(positions), bool)
    for earlier in before.values():
        survives &= ~np.isin(positions, earlier.index[~earlier.correct])
    return survives


def _attack_part(
    evaluation: Evaluation,
    name: str,
    attack: Attack,
    *,
    number: int,
    rows: IntArray,
    before: Mapping[str, Records],
    path: Path | None,
) -> Records:
    part, eps = evaluation.images.take(rows), evaluation.radii.get(name, evaluation.eps)[rows]
    begin = time.perf_counter()
    keeping = evaluation.save_adversarial and name != CLEAN
    outcome = AttackResult.empty(part, len(evaluation.meta.class_names), keeping)
    attacked = np.ones(len(part), bool)
    if name != CLEAN and evaluation.protocol == "any":
        _inherit(outcome, before[CLEAN], part)
        if name in evaluation.after:
            _inherit(outcome, before[evaluation.after[name]], part)
        attacked = ~outcome.done
    if evaluation.only_survivors(name):
        attacked &= _survivors(part.positions, before)
    evaluation.report(name, int((~attacked).sum()))
    places = np.flatnonzero(attacked)
    if name != CLEAN:  # the hardest to break first: workers get equal shares, and batches empty quickly at the end
        places = places[np.argsort(before[CLEAN].frame["loss"].to_numpy()[places], kind="stable")]
    if places.size:
        outcome = attack_places(evaluation, attack, part, eps=eps, outcome=outcome, places=places, name=name)
    seconds = time.perf_counter() - begin
    keep = np.arange(len(part))
    if evaluation.only_survivors(name):
        keep = np.sort(places)
    stats = {
        "seconds": seconds,
        "passes": outcome.passes,
        "rejected": outcome.rejected,
        "outside": outcome.outside,
        "attacked": len(places),
    }
    kept = None
    if keeping and path is not None:  # before the rows: a part whose rows are there is complete
        counts, kept = _write_points(evaluation, name, path, part.take(keep), outcome, keep)
        stats |= counts
    meta = dataclasses.replace(
        evaluation.meta, stats={name: stats}, part=Part(name, number, digest(part.positions), kept)
    )
    return _to_records(evaluation, name, part.take(keep), eps=eps[keep], outcome=outcome, keep=keep, meta=meta)


def _inherit(outcome: AttackResult, before: Records, part: Images) -> None:
    """Examples that an earlier attack broke inside the ball, or that are misclassified anyway, are broken already."""
    broken = before.take(np.flatnonzero(~before.correct))
    order = np.argsort(part.positions)
    at = order[np.searchsorted(part.positions, broken.index, sorter=order)]
    for column, values in outcome.columns.items():
        values[at] = broken.frame[column].to_numpy()
    if broken.probs is not None:
        outcome.probs[at] = broken.probs
    outcome.done[at] = True


def _to_records(
    evaluation: Evaluation, name: str, part: Images, *, eps: Array, outcome: AttackResult, keep: IntArray, meta: Meta
) -> Records:
    radius = np.zeros(len(part)) if name == CLEAN else eps
    columns: dict[str, Any] = {"index": part.positions, "label": part.labels, "attack": name, "eps": radius}
    columns |= {key: column[keep] for key, column in outcome.columns.items()}
    # The types they are stored in, so that a part just computed and one read back are equal to the last bit.
    types = {key: COLUMNS[key].to_pandas_dtype() for key in columns if key != "attack"}
    frame = pd.DataFrame(columns).astype(types)
    return Records(frame, meta, outcome.probs[keep] if evaluation.probs else None)
