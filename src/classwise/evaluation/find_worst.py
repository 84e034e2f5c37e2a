"""`find_worst`: name the least robust class without attacking every image.

One clean pass over all images; what is misclassified is broken already, at no cost. Of the rest each class is attacked
in random order, in rounds, and leaves the race (`classwise.anytime`) once it surely is not the worst. The first rounds
are small, since most classes are far from the worst and leave early; later ones grow with what a class has had, so that
looks stay rare and batches full.

What was attacked is kept image by image in the run folder. The rounds follow from the outcomes alone, so the same
command goes on after a kill, and one with another confidence or tolerance uses what is there.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from classwise import anytime
from classwise.anytime import Standing
from classwise.arguments import checked
from classwise.attacks.rows import Attack
from classwise.datasets.images import Images, IntArray
from classwise.errors import UserError
from classwise.evaluation import audit as front
from classwise.evaluation import jobs, run
from classwise.evaluation.asked import Asked, in_folder
from classwise.evaluation.attacked import Attacked
from classwise.evaluation.inputs import Eps, attacks_of, images_of, module_of
from classwise.findings import Finding
from classwise.format import interval, level, percent
from classwise.metrics import accuracy
from classwise.records import CLEAN, Array, Records
from classwise.results import write_text
from classwise.run_lock import one_writer
from classwise.tables import csv_text
from classwise.terminal import progress_bar
from classwise.threat import Norm
from classwise.trust import trusting


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
) -> WorstFound:
    """Find the class of lowest robust accuracy, attacking only as many images as that takes.

    With probability at least `confidence`, over the random order in which images are attacked, the classes reported
    hold every class whose robust accuracy on *all* the images given is the lowest, as a full audit with the same
    attack and seed would find it.

    attack: one attack, or several of which the worst case counts: each sees what those before it left standing.
    tolerance: stop as soon as the classes left are surely within this much of each other (0.02 is two points).
    out: a run folder; killed and started again with the same call, the search goes on.

    Everything else is as in `audit`. An image is robust if no point tried breaks it (protocol "any").
    """
    given = dict(locals())
    begin = time.perf_counter()
    settings = front.Settings(
        norm, "any", "standing", seed, confidence, batch_size, workers, amp, eot, False, fold, force, False
    )
    anytime.check_tolerance(tolerance)
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
        standing, records = _race(job, clean, confidence, tolerance, progress)
    seconds = time.perf_counter() - begin
    found = WorstFound(standing, records, confidence, tolerance, tuple(findings), seconds, folder)
    if folder is not None:
        found.save(folder)
    return found


@dataclass(frozen=True)
class WorstFound:
    """What a search found: the classes that may be the worst, bounds for every class, and what it cost.

    records: the clean rows of all images, and the rows of those that were attacked.
    """

    standing: Standing
    records: Records
    confidence: float
    tolerance: float
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    folder: Path | None = None

    @property
    def worst(self) -> tuple[str, ...]:
        """The class of lowest robust accuracy; several where they are tied, or within the tolerance."""
        return tuple(self.records.class_names[c] for c in np.flatnonzero(self.standing.open))

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the lowest robust accuracy of any class, on all images."""
        s = self.standing
        return float(s.low[s.open].min()), float(s.high[s.open].min())

    def by_class(self) -> pd.DataFrame:
        """One row per class.

        Columns: class, n, right (when clean), attacked, robust (of those), estimate, low and high (of the robust
        accuracy on all n images), in_question, population_low and population_high (see docs/find_worst.md).
        """
        s = self.standing
        population = anytime.population(s, self.confidence)
        return pd.DataFrame(
            {
                "class": self.records.class_names,
                "n": s.whole,
                "right": s.right,
                "attacked": s.seen,
                "robust": s.robust,
                "estimate": s.estimate,
                "low": s.low,
                "high": s.high,
                "in_question": s.open,
                "population_low": population[0],
                "population_high": population[1],
            }
        )

    @property
    def attacked(self) -> int:
        """Images attacked; a full audit attacks all that are right when clean."""
        return int(self.standing.seen.sum())

    @property
    def passes(self) -> int:
        """Gradient passes (model evaluations of the attack) of single images."""
        return int(self._spent().sum())

    @property
    def full_passes(self) -> int:
        """About what a full audit takes: each class's passes per attacked image times its images right when clean.

        A class of which nothing was attacked counts with the average of the others.
        """
        seen = self.standing.seen
        average = self.passes / max(self.attacked, 1)
        per_image = np.where(seen > 0, self._spent() / np.maximum(seen, 1), average)
        return round(float(per_image @ self.standing.right))

    def _spent(self) -> Array:
        rows = self.records.frame[self.records.frame["attack"] != CLEAN]
        return np.bincount(rows["label"], rows["queries"], minlength=self.records.num_classes)

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary."""
        meta = self.records.meta
        table = self.by_class()
        return {
            "worst": list(self.worst),
            "low": self.interval[0],
            "high": self.interval[1],
            "sentence": f"{self}.",
            "confidence": self.confidence,
            "tolerance": self.tolerance,
            "by_class": table.astype(object).where(table.notna(), None).to_dict("records"),
            "images": {
                "all": int(self.standing.whole.sum()),
                "right": int(self.standing.right.sum()),
                "attacked": self.attacked,
            },
            "passes": {"spent": self.passes, "full_audit": self.full_passes},
            "rounds": self.standing.rounds,
            "attacks": {name: dict(info.settings) for name, info in meta.attacks.items() if name != CLEAN},
            "threat": {"norm": meta.norm, "eps": meta.eps},
            "seed": meta.seed,
            "findings": [finding.to_dict() for finding in self.findings],
            "seconds": round(self.seconds, 3),
            "versions": dict(meta.versions),
        }

    def save(self, folder: Path) -> None:
        """Write worst.json and worst.csv into the folder; the records are there already."""
        write_text(folder / "worst.json", json.dumps(self.summary(), indent=1, allow_nan=False) + "\n")
        write_text(folder / "worst.csv", csv_text(self.by_class()))

    def __str__(self) -> str:
        share = f"{self.passes:,} passes, about {percent(self.passes / max(self.full_passes, 1), 0)} of a full audit's"
        names = self.worst[0] if len(self.worst) == 1 else f"one of {', '.join(self.worst)}"
        return (
            f"Worst class: {names}, robust accuracy {interval(*self.interval)} ({level(self.confidence)} confidence); "
            f"{self.attacked:,} of {self.standing.right.sum():,} images attacked, {share}"
        )

    __repr__ = __str__


def _marked(job: jobs.Job) -> jobs.Job:
    """The job whose rows say that only some examples were attacked, so that no audit goes on in its run folder."""
    infos = {
        name: info if name == CLEAN else dataclasses.replace(info, settings={**info.settings, "find_worst": True})
        for name, info in job.meta.attacks.items()
    }
    return dataclasses.replace(job, meta=dataclasses.replace(job.meta, attacks=infos))


def _clean(job: jobs.Job, progress: bool | None) -> Records:
    """The clean row of every image, in their order."""
    with progress_bar(len(job.images), [CLEAN], progress) as report:
        return run.evaluate(dataclasses.replace(job, attacks={}, report=report))


def _race(
    job: jobs.Job, clean: Records, confidence: float, tolerance: float, progress: bool | None
) -> tuple[Standing, Records]:
    """Let the classes race; the rows are those of the images the race asked for, whatever else the folder holds."""
    queues = _queues(job.images, clean.correct, job.meta.seed)
    right, whole = accuracy.counts(clean)
    with progress_bar(int(right.sum()), [*job.attacks], progress) as report:
        pool = Attacked.of(dataclasses.replace(job, report=report))

        def attack(seen: Array) -> Array:
            rows = np.concatenate([queue[:count] for queue, count in zip(queues, seen, strict=True)])
            return np.bincount(job.images.labels[rows[pool.stood(rows)]], minlength=len(queues))

        standing = anytime.race(right, whole, attack, confidence, tolerance)
    asked = np.concatenate([queue[:count] for queue, count in zip(queues, standing.seen, strict=True)])
    return standing, Records.concat([clean, *pool.rows(asked)])


def _queues(images: Images, right: Array, seed: int) -> list[IntArray]:
    """For each class its images that are right when clean, in the random order in which they are attacked."""
    order = np.random.default_rng([seed, len(images)]).permutation(len(images))  # not the order `subset` draws by
    order = order[right[order]]
    return [order[images.labels[order] == c] for c in range(images.num_classes)]
