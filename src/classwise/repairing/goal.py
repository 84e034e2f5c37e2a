"""Which of the changes tried is taken, and which are worth trying in between.

worst, tail     the highest accuracy of the worst class, or of the worst fifth of the classes
keep_average    only changes whose average is at most so much below that of the unchanged model
keep_each       only changes that cost no class more than this
min             the highest average of the changes with which every named class reaches its minimum

The unchanged model is always among the candidates, so that a repair never takes what is worse on the calibration
images. Ties go to the higher average, then to what was tried first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from classwise.core.records import Array
from classwise.metrics.tail import lowest

BISECTIONS = 3  # changes tried between too little and too much
FRONT_POINTS = 7  # changes tried in between for the front
_ROUNDING = 1e-9
_NEAR = 0.01


@dataclass(frozen=True, kw_only=True)
class Score:
    """A change by what came of it: the accuracy of the worst class, of the worst fifth, of all on average, how much the
    classes with a minimum lack of it, summed, and the accuracy of every class, NaN without images."""

    worst: float
    tail: float
    average: float
    lacking: float
    each: tuple[float, ...] = ()

    @classmethod
    def of(cls, accuracy: Array, minimums: Mapping[int, float]) -> Score:
        seen = np.sort(accuracy[~np.isnan(accuracy)])
        lacking = sum(max(least - float(np.nan_to_num(accuracy[number])), 0.0) for number, least in minimums.items())
        tail = float(lowest(seen).mean())
        each = tuple(accuracy.tolist())
        return cls(worst=float(seen[0]), tail=tail, average=float(seen.mean()), lacking=lacking, each=each)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a repair is asked for; see the module's docstring. minimums: by the classes' numbers."""

    name: str = "worst"
    keep_average: float | None = None
    keep_each: float | None = None
    minimums: Mapping[int, float]
    front: bool = False

    def score(self, accuracy: Array) -> Score:
        return Score.of(accuracy, self.minimums)

    def allowed(self, score: Score, unchanged: Score) -> bool:
        """Whether the average is kept, and every class."""
        if self.keep_average is not None and score.average < unchanged.average - self.keep_average - _ROUNDING:
            return False
        lost = (before - after for before, after in zip(unchanged.each, score.each, strict=True))
        return self.keep_each is None or not any(loss > self.keep_each + _ROUNDING for loss in lost)

    @property
    def limited(self) -> bool:
        """Whether some changes cost too much."""
        return self.keep_average is not None or self.keep_each is not None

    def choose(self, scores: Sequence[Score]) -> int:
        """The change to take; the first of the scores is that of the unchanged model."""
        return self._best([number for number, score in enumerate(scores) if self.allowed(score, scores[0])], scores)

    def nearly(self, score: Score, best: Score) -> bool:
        """Whether it is within a percentage point of the best in what the goal asks for."""
        if self.minimums:
            return score.lacking <= best.lacking + _ROUNDING
        value, most = (score.tail, best.tail) if self.name == "tail" else (score.worst, best.worst)
        return value >= most - _NEAR

    def farthest(self, scores: Sequence[Score]) -> int:
        """The change to take were the average no matter: the end of the segment on which those in between lie."""
        return self._best(range(len(scores)), scores)

    def _best(self, numbers: Sequence[int], scores: Sequence[Score]) -> int:
        def rank(number: int) -> tuple[float, ...]:
            score = scores[number]
            if self.minimums:
                return (-round(score.lacking, 9), score.average, score.worst, -number)
            return (score.tail if self.name == "tail" else score.worst, score.average, -number)

        return max(numbers, key=rank)

    def next_share(self, scores: Sequence[Score], between: Mapping[float, Score]) -> float | None:
        """The next share t of the farthest change to try, from the changes tried and those tried in between so far;
        None where none is needed.

        Where too much is lost, the largest t that keeps it is sought; where minimums are reached, the smallest
        that reaches them. For the front every share is tried.
        """
        searched = [share for share in between if share not in _GRID] if self.front else list(between)
        end = scores[self.farthest(scores)]
        if self.front and (left := [share for share in _GRID if share not in between]):
            return left[0]
        if len(searched) >= BISECTIONS:
            return None
        low, high = 0.0, 1.0
        if self.limited and not self.allowed(end, scores[0]):
            low = max([share for share, score in between.items() if self.allowed(score, scores[0])] + [0.0])
            high = min([share for share, score in between.items() if not self.allowed(score, scores[0])] + [1.0])
        elif self.minimums and end.lacking == 0 < scores[0].lacking:
            high = min([share for share, score in between.items() if score.lacking == 0] + [1.0])
            low = max([share for share in between if share < high] + [0.0])
        else:
            return None
        return (low + high) / 2 if low < high else None

    def most_between(self) -> int:
        """How many changes may be tried in between, at most."""
        searched = BISECTIONS if self.limited or self.minimums else 0
        return searched + (FRONT_POINTS if self.front else 0)


def front(scores: Sequence[Score]) -> list[int]:
    """The changes that no other exceeds in the worst class without a lower average, or the other way round."""

    def dominated(one: Score) -> bool:
        return any(
            other.worst >= one.worst
            and other.average >= one.average
            and (other.worst, other.average) != (one.worst, one.average)
            for other in scores
        )

    return [number for number, score in enumerate(scores) if not dominated(score)]


_GRID = tuple(step / (FRONT_POINTS + 1) for step in range(1, FRONT_POINTS + 1))
