"""What came of an attack on a part of the data, filled as examples finish."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from classwise.core.records import COLUMNS, Array
from classwise.data.images import Images, IntArray


@dataclass(kw_only=True)
class AttackResult:
    """What came of an attack on a part: one entry per example of the part, filled as examples finish."""

    columns: dict[str, Array]
    probs: Array | None  # where they are kept
    done: Array
    passes: int = 0  # gradient (or query) passes of single examples
    rejected: int = 0  # claimed broken by the accelerated model, refused by the untouched one
    outside: int = 0  # points outside the ball or the pixel range, refused
    points: Array | None = None  # the points themselves, where they are to be kept

    @classmethod
    def empty(cls, part: Images, num_classes: int, keep_points: bool = False, keep_probs: bool = True) -> AttackResult:
        count = len(part)
        columns = {name: np.zeros(count) for name in COLUMNS if name not in ("index", "label", "attack", "eps")}
        columns["minimal"] += np.inf
        points = part.batch(np.arange(count))[0].numpy() if keep_points else None
        probs = np.zeros((count, num_classes), np.float32) if keep_probs else None
        return cls(columns=columns, probs=probs, done=np.zeros(count, bool), points=points)

    def copy(self) -> AttackResult:
        """The same with arrays of its own."""
        probs, points = (None if array is None else array.copy() for array in (self.probs, self.points))
        columns = {name: column.copy() for name, column in self.columns.items()}
        return replace(self, columns=columns, probs=probs, done=self.done.copy(), points=points)

    def put(self, places: IntArray, verdict: dict[str, Array]) -> None:
        """Rows of the table by the names of its columns, and the probabilities where they are kept."""
        for name in ("prediction", "confidence", "true_prob", "loss", "distance", "minimal", "step"):
            self.columns[name][places] = verdict[name]
        if self.probs is not None:
            self.probs[places] = verdict["probs"]
        self.done[places] = True
