"""The images that a search for the worst class has attacked so far, in memory and in its run folder."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from classwise.core.errors import UserError
from classwise.core.meta import Part
from classwise.core.records import CLEAN, Array, Records, digest
from classwise.data.images import IntArray
from classwise.engine import run
from classwise.engine.evaluation import Evaluation


class Others(Protocol):
    """Other processes that attack images and store their rows."""

    @property
    def pieces(self) -> int:
        """Into how many pieces the images of a round should be divided."""

    def attack(self, pieces: Mapping[int, IntArray]) -> None:
        """Attack the images at these rows, and store each piece as the part of its number."""


@dataclass
class Attacked:
    """The images attacked so far, in memory and in the run folder, and what came of each."""

    evaluation: Evaluation
    place: Mapping[int, int]  # of an example's index in the evaluation's images
    known: Array
    broken: Array
    parts: list[Records] = field(default_factory=list)
    others: Others | None = None

    @classmethod
    def of(cls, evaluation: Evaluation, others: Others | None = None) -> Attacked:
        """What an earlier run left in the folder; nothing without one. others: processes that attack."""
        place = {index: row for row, index in enumerate(evaluation.images.positions.tolist())}
        made = cls(evaluation, place, np.zeros(len(evaluation.images), bool), np.zeros(len(evaluation.images), bool))
        made.others = others
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
        if self.others is not None:
            self._attack_elsewhere(missing, self.others)
        for begin in range(0, len(missing) if self.others is None else 0, self.evaluation.plan.part):
            self._attack(missing[begin : begin + self.evaluation.plan.part])
        return ~self.broken[rows]

    def rows(self, asked: IntArray) -> list[Records]:
        """The rows of the images asked for, part by part."""
        index = self.evaluation.images.positions[asked]
        return [part.take(np.flatnonzero(np.isin(part.index, index))) for part in self.parts]

    def _attack(self, rows: IntArray) -> None:
        number = None if self.evaluation.folder is None else self._free(1)[0]
        self._add(attack_rows(self.evaluation, rows, number))

    def _attack_elsewhere(self, rows: IntArray, others: Others) -> None:
        """Have other processes attack the images, in pieces with images of all classes, and read what they stored."""
        evaluation = self.evaluation
        assert evaluation.folder is not None
        count = min(max(others.pieces, -(-len(rows) // evaluation.plan.part)), len(rows))
        pieces = dict(zip(self._free(count), (rows[begin::count] for begin in range(count)), strict=True))
        others.attack(pieces)
        for number, own in pieces.items():
            path = evaluation.folder.search_part(number)
            if (part := self._complete(path)) is None:
                raise UserError(f"{path} is not what was to be computed; repeat the search's command.")
            self._add(part)
            for name in evaluation.attacks:
                evaluation.report(name, len(own))

    def _free(self, count: int) -> list[int]:
        """So many numbers of parts that are not there."""
        assert self.evaluation.folder is not None
        part = self.evaluation.folder.search_part
        return list(itertools.islice((n for n in itertools.count() if not part(n).exists()), count))

    def _add(self, part: Records) -> None:
        at = np.array([self.place[index] for index in part.index.tolist()], dtype=np.int64)
        self.known[at] = True
        self.broken[at[~part.correct]] = True
        self.parts.append(part)


def attack_rows(evaluation: Evaluation, rows: IntArray, number: int | None) -> Records:
    """Attack the images at `rows`; in a run folder the rows are stored as the part of that number."""
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
    if evaluation.folder is not None and number is not None:
        about = Part("", number, digest(np.sort(evaluation.images.positions[rows])))
        stored = dataclasses.replace(part, meta=dataclasses.replace(part.meta, part=about))
        run.write_part(stored, evaluation.folder.search_part(number))
    return part
