"""`find_worst`: name the least robust class without attacking every image.

One clean pass over all images; what is misclassified is broken already, at no cost. Of the rest each class is attacked
in random order, in rounds, and leaves the race once it surely is not the worst
(`classwise.stats.confidence_sequences`). The first rounds
are small, since most classes are far from the worst and leave early; later ones grow with what a class has had, so that
looks stay rare and batches full.

What was attacked is kept image by image in the run folder. The rounds follow from the outcomes alone, so the same
command goes on after a kill, and one with another confidence or tolerance uses what is there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from classwise.attacks.attack import Attack
from classwise.auditing import audit as front
from classwise.auditing.asked import Asked, in_folder
from classwise.auditing.inputs import Eps, attacks_of, images_of, module_of
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Array, Records
from classwise.core.run_lock import one_writer
from classwise.core.threat import Norm
from classwise.core.trust import trusting
from classwise.data.images import Images, IntArray
from classwise.engine import evaluation, run
from classwise.engine.attacked import Attacked
from classwise.metrics import accuracy
from classwise.results.search_result import SearchResult
from classwise.show.terminal import progress_bar
from classwise.stats import confidence_sequences
from classwise.stats.confidence_sequences import RaceState


@checked
@one_writer
def find_worst(
    model: nn.Module | str | Path | Any,
    data: Any,
    attack: str | Attack | Sequence[str | Attack] = "pgd-20",
    eps: Eps = "8/255",
    *,
    confidence: float = 0.95,
    tolerance: float = 0.0,
    norm: Norm = "linf",
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    weights: str | Path | None = None,
    normalize: Any = None,
    root: str | Path | None = None,
    split: str = "test",
    download: bool = False,
    limit: int | None = None,
    per_class: int | None = None,
    classes: Sequence[str | int] | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str | torch.device | None = None,
    amp: str | None = None,
    eot: int = 1,
    fold: bool = True,
    force: bool = False,
    trust: bool = False,
    progress: bool | None = None,
) -> SearchResult:
    """Find the class of lowest robust accuracy, attacking only as many images as that takes.

    With probability at least `confidence`, over the random order in which images are attacked, the classes reported
    hold every class whose robust accuracy on *all* the images given is the lowest, as a full audit with the same
    attack and seed would find it.

    attack: one attack, or several of which the worst case counts: each sees the survivors of those before it.
    tolerance: stop as soon as the classes left are surely within this much of each other (0.02 is two points).
    out: a run folder; killed and started again with the same call, the search goes on.

    Everything else is as in `audit`. An image is robust if no point tried breaks it (protocol "any").
    """
    given = dict(locals())
    begin = time.perf_counter()
    settings = front.Settings(
        norm, "any", "standing", seed, confidence, batch_size, workers, amp, eot, False, fold, force, False
    )
    confidence_sequences.check_tolerance(tolerance)
    named = attacks_of(attack, eot=eot if eot > 1 else None)
    if not named:
        raise UserError("the clean images need no search: audit with --attack clean shows the worst class at once.")
    images = images_of(data, root, split, download, num_classes, class_names).subset(limit, per_class, classes, seed)
    with trusting(trust):
        module = module_of(model, weights, normalize, images, num_classes, device)
    folder = None if out is None else Path(out)
    with trusting(trust), front.evaluating(module) as was_training:
        job, findings = front.prepare(module, images, named, eps, {}, settings, was_training)
        job = _marked(job)
        if folder is not None:
            asked = Asked.of(find_worst, given, images, module)
            asked = dataclasses.replace(asked, command={**asked.command, "find_worst": True})
            job = in_folder(job, folder, asked, settings.coverage, amp, confidence, overwrite)
        clean = _clean(job, progress)
        state, records = _race(job, clean, confidence, tolerance, progress)
    seconds = time.perf_counter() - begin
    found = SearchResult(
        state=state,
        records=records,
        confidence=confidence,
        tolerance=tolerance,
        findings=tuple(findings),
        seconds=seconds,
        folder=folder,
    )
    if folder is not None:
        found.save(folder)
    return found


def _marked(job: evaluation.Evaluation) -> evaluation.Evaluation:
    """The job whose rows say that only some examples were attacked, so that no audit goes on in its run folder."""
    infos = {
        name: info if name == CLEAN else dataclasses.replace(info, settings={**info.settings, "find_worst": True})
        for name, info in job.meta.attacks.items()
    }
    return dataclasses.replace(job, meta=dataclasses.replace(job.meta, attacks=infos))


def _clean(job: evaluation.Evaluation, progress: bool | None) -> Records:
    """The clean row of every image, in their order."""
    with progress_bar(len(job.images), [CLEAN], progress) as report:
        return run.evaluate(dataclasses.replace(job, attacks={}, report=report))


def _race(
    job: evaluation.Evaluation, clean: Records, confidence: float, tolerance: float, progress: bool | None
) -> tuple[RaceState, Records]:
    """Let the classes race; the rows are those of the images the race asked for, whatever else the folder holds."""
    queues = _queues(job.images, clean.correct, job.meta.seed)
    right, whole = accuracy.counts(clean)
    with progress_bar(int(right.sum()), [*job.attacks], progress) as report:
        pool = Attacked.of(dataclasses.replace(job, report=report))

        def attack(seen: Array) -> Array:
            rows = np.concatenate([queue[:count] for queue, count in zip(queues, seen, strict=True)])
            return np.bincount(job.images.labels[rows[pool.stood(rows)]], minlength=len(queues))

        state = confidence_sequences.race(right, whole, attack, confidence, tolerance)
    asked = np.concatenate([queue[:count] for queue, count in zip(queues, state.seen, strict=True)])
    return state, Records.concat([clean, *pool.rows(asked)])


def _queues(images: Images, right: Array, seed: int) -> list[IntArray]:
    """For each class its images that are right when clean, in the random order in which they are attacked."""
    order = np.random.default_rng([seed, len(images)]).permutation(len(images))  # not the order `subset` draws by
    order = order[right[order]]
    return [order[images.labels[order] == c] for c in range(images.num_classes)]
