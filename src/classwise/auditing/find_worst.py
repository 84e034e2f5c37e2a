"""`find_worst`: name the least robust class without attacking every image.

One clean pass over all images; what is misclassified is broken already, at no cost. Of the rest each class is attacked
in random order, in rounds, and leaves the race once it surely is not the worst (`stats.confidence_sequences`). The
first rounds are small, since most classes are far from the worst and leave early; later ones grow with what a class has
had, so that looks stay rare and batches full.

What was attacked is kept image by image in the run folder. The rounds follow from the outcomes alone, so the same
command resumes after a kill, and one with another confidence or tolerance uses what is there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from classwise.attacks.attack import Attack
from classwise.auditing import several
from classwise.auditing.config import AuditConfig, SearchSettings
from classwise.auditing.inputs import Eps
from classwise.auditing.prepare import prepared
from classwise.core.arguments import checked
from classwise.core.mirror import mirrored, url_of
from classwise.core.records import CLEAN, Array, Records
from classwise.core.run_lock import writing
from classwise.core.settings import with_settings
from classwise.data.images import Images, IntArray
from classwise.engine import evaluation, run
from classwise.engine.attacked import Attacked, Others
from classwise.metrics import accuracy
from classwise.results.search_result import SearchResult
from classwise.show.progress import progress_bar
from classwise.stats import confidence_sequences
from classwise.stats.confidence_sequences import RaceState

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
@with_settings(AuditConfig, SearchSettings)
def find_worst(
    model: Any,
    data: Any,
    attacks: str | Attack | Sequence[str | Attack] = "pgd-20",
    eps: Eps = "8/255",
    **settings: Unpack[SearchSettings],
) -> SearchResult:
    """Find the class of lowest robust accuracy, attacking only as many images as that takes.

    With probability at least `confidence`, over the random order in which images are attacked, the classes reported
    include every class whose robust accuracy on *all* the images given is the lowest, as a full audit with the same
    attack and seed would find it.

    An image is robust if no point tried breaks it (protocol "any"). Of several attacks the worst case counts: each sees
    what those before it did not break.
    """
    return search_by(AuditConfig.of_search(model=model, data=data, attacks=attacks, eps=eps, **settings))


def search_by(config: AuditConfig) -> SearchResult:
    """The search that a config asks for."""
    if url_of(config.output.out) is not None:
        with mirrored(config.output.out) as here:
            return search_by(config.in_folder(here))
    begin, folder = time.perf_counter(), config.folder
    confidence, tolerance = config.statistics.confidence, config.statistics.tolerance
    others = several.opened(config, rounds=True) if config.resources.several else nullcontext()
    with writing(config.output.out), others as crew, prepared(config) as (job, findings):
        with progress_bar({CLEAN: len(job.images)}, show=config.output.progress) as report:
            clean = run.evaluate(dataclasses.replace(job, attacks={}, report=report))
        state, records = _race(job, clean, confidence, tolerance, config.output.progress, crew)
        found = SearchResult(
            state=state,
            records=records,
            confidence=confidence,
            tolerance=tolerance,
            findings=tuple(findings),
            seconds=time.perf_counter() - begin,
            folder=folder,
        )
        if folder is not None:
            found.save(folder)
    return found


def _race(
    job: evaluation.Evaluation,
    clean: Records,
    confidence: float,
    tolerance: float,
    progress: bool | None,
    others: Others | None,
) -> tuple[RaceState, Records]:
    """Let the classes race; the rows are those of the images the race asked for, whatever else the folder holds."""
    queues = _queues(job.images, clean.correct, job.meta.seed)
    right, whole = accuracy.counts(clean)
    _, costs = job.workload()
    with progress_bar(dict.fromkeys(job.attacks, int(right.sum())), costs, progress) as report:
        pool = Attacked.of(dataclasses.replace(job, report=report), others)

        def attack(seen: Array) -> Array:
            rows = np.concatenate([queue[:count] for queue, count in zip(queues, seen, strict=True)])
            return np.bincount(job.images.labels[rows[pool.survivors(rows)]], minlength=len(queues))

        state = confidence_sequences.race(right, whole, attack, confidence, tolerance)
    asked = np.concatenate([queue[:count] for queue, count in zip(queues, state.seen, strict=True)])
    return state, Records.concat([clean, *pool.rows(asked)])


def _queues(images: Images, right: Array, seed: int) -> list[IntArray]:
    """For each class its images that are right when clean, in the random order in which they are attacked."""
    order = np.random.default_rng([seed, len(images)]).permutation(len(images))  # not the order `subset` draws by
    order = order[right[order]]
    return [order[images.labels[order] == c] for c in range(images.num_classes)]
