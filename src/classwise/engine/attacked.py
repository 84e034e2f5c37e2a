"""The images that a search for the worst class has attacked so far, in memory and in its run folder."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from classwise.core.errors import UserError
from classwise.core.meta import Part
from classwise.core.records import CLEAN, Array, Records, digest
from classwise.data.images import IntArray
from classwise.engine import run
from classwise.engine.evaluation import Evaluation


@dataclass
class Attacked:
    """The images attacked so far, in memory and in the run folder, and what came of each."""

    evaluation: Evaluation
    place: Mapping[int, int]  # of an example's index in the evaluation's images
    known: Array
    broken: Array
    parts: list[Records] = field(default_factory=list)

    @classmethod
    def of(cls, evaluation: Evaluation) -> Attacked:
        """What an earlier run left in the folder; nothing without one."""
        place = {index: row for row, index in enumerate(evaluation.images.positions.tolist())}
        made = cls(evaluation, place, np.zeros(len(evaluation.images), bool), np.zeros(len(evaluation.images), bool))
        for path in [] if evaluation.folder is None else evaluation.folder.search_parts():
            part = made._complete(path)
            if part is None:  # its images are attacked again
                try:
                    path.unlink()
                except OSError as error:
                    raise run.cannot_write(path, error) from error
                continue
            made._add(part)
            for name in evaluation.attacks:
                evaluation.report(name, part.frame["index"].nunique())
        return made

    def _complete(self, path: Path) -> Records | None:
        """The part in a file; None if it is damaged, of other images, of images there already, or not whole."""
        try:
            part = Records.read(path)
        except UserError:
            return None
        first = next(iter(self.evaluation.attacks))
        shown = np.sort(part.of(first).index) if first in part.attacks else np.zeros(0, np.int64)
        stated = part.meta.part
        fits = (
            part.class_names == self.evaluation.meta.class_names
            and all(index in self.place and not self.known[self.place[index]] for index in shown.tolist())
            and (stated is None or stated.covers == digest(shown))
            and set(part.attacks) <= set(self.evaluation.attacks)
        )
        for name in self.evaluation.attacks:
            own = part.take(np.flatnonzero((part.frame["attack"] == name).to_numpy()))
            fits = fits and np.array_equal(np.sort(own.index), shown)
            shown = np.setdiff1d(shown, own.index[~own.correct])
        return part if fits else None

    def survivors(self, rows: IntArray) -> Array:
        """Which of the images at `rows` no attack broke; those not attacked yet are attacked now, part by part."""
        missing = rows[~self.known[rows]]
        for begin in range(0, len(missing), self.evaluation.plan.part):
            self._attack(missing[begin : begin + self.evaluation.plan.part])
        return ~self.broken[rows]

    def rows(self, asked: IntArray) -> list[Records]:
        """The rows of the images asked for, part by part."""
        index = self.evaluation.images.positions[asked]
        return [part.take(np.flatnonzero(np.isin(part.index, index))) for part in self.parts]

    def _attack(self, rows: IntArray) -> None:
        evaluation = self.evaluation
        part = run.evaluate(
            dataclasses.replace(
                evaluation,
                images=evaluation.images.take(rows),
                eps=evaluation.eps[rows],
                plan=dataclasses.replace(evaluation.plan, part=len(rows), parts=1),
                report=lambda name, finished: None if name == CLEAN else evaluation.report(name, finished),
                folder=None,
            )
        )
        part = part.take(np.flatnonzero((part.frame["attack"] != CLEAN).to_numpy()))
        if evaluation.folder is not None:
            paths = ((n, evaluation.folder.search_part(n)) for n in itertools.count())
            number, path = next((n, path) for n, path in paths if not path.exists())
            about = Part("", number, digest(np.sort(evaluation.images.positions[rows])))
            run.write_part(dataclasses.replace(part, meta=dataclasses.replace(part.meta, part=about)), path)
        self._add(part)

    def _add(self, part: Records) -> None:
        at = np.array([self.place[index] for index in part.index.tolist()], dtype=np.int64)
        self.known[at] = True
        self.broken[at[~part.correct]] = True
        self.parts.append(part)
