"""What a training came to on its held-out images: the selected epoch, and its classes with intervals. Numbers only.

The history has the accuracies of every epoch, and a recipe holds the same number n of images of each class out, so that
accuracy · n images of a class are correct. Of a history without its settings there are no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.notebook import Charted
from classwise.core.run_folder import TrainingFolder
from classwise.metrics import tail, worst
from classwise.stats import intervals
from classwise.stats.intervals import Array

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """A share with its interval, which is not defined where the number of images is not known."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class TrainingResult(Charted):
    """A training that has finished an epoch: its history, its whole config.toml if there is one, and its remarks."""

    history: pd.DataFrame
    config: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @classmethod
    def load(cls, folder: TrainingFolder) -> TrainingResult:
        """That of a run folder."""
        return cls(history=folder.history(), config=folder.config(), remarks=folder.remarks())

    @property
    def rule(self) -> str:
        """The rule that selected the checkpoint; empty where nobody knows."""
        return str(self.config.get("validate", {}).get("select", ""))

    @property
    def selected(self) -> int | None:
        """The epoch of best.pt, as the history says, or by the rule where it is older than that column; else None."""
        if "best_epoch" in self.history and (known := self.history["best_epoch"].dropna()).size:
            return int(known.iloc[-1])
        if self.rule == "last":
            return int(self.history["epoch"].iloc[-1])
        rows = self.history.dropna(subset=["robust"]) if "robust" in self.history else self.history[:0]
        if rows.empty or self.rule not in ("worst", "average"):
            return None
        scores = [self._score(row) for _, row in rows.iterrows()]
        return int(rows["epoch"].iloc[scores.index(max(scores))])

    def _score(self, row: pd.Series[Any]) -> list[float]:
        """The same numbers as `training.history.score`."""
        if self.rule == "average":
            return [float(row["robust"])]
        known = _known(row, "robust")
        lowest = float(known.min())
        return [lowest, *([] if lowest > 0 else [float(tail.lowest(known).mean())]), float(row["robust"])]

    @property
    def shown(self) -> pd.Series[Any] | None:
        """The history's row of the selected epoch, or of the last one validated; None where nothing was held out."""
        if "robust" not in self.history:
            return None
        rows = self.history.dropna(subset=["robust"])
        own = rows[rows["epoch"] == self.selected]
        return None if rows.empty else (own if len(own) else rows).iloc[-1]

    @property
    def images(self) -> int | None:
        """How many images of each class are held out."""
        count = self.config.get("data", {}).get("validation")
        return count if isinstance(count, int) and count > 0 else None

    def by_class(self) -> pd.DataFrame:
        """A row for each class in the epoch shown, in the history's order: class, n, clean, robust, low, high."""
        if (row := self.shown) is None:
            return pd.DataFrame(columns=["class", "n", "clean", "robust", "low", "high"])
        names = [str(name).removeprefix("robust:") for name in self.history if str(name).startswith("robust:")]
        clean, robust = (np.asarray([row.get(f"{what}:{name}", np.nan) for name in names], float) for what in _SHOWN)
        support = np.where(np.isnan(robust), 0, self.images or 0)
        low, high = self._bounds(robust, support)
        columns = {"class": names, "n": support, "clean": clean, "robust": robust, "low": low, "high": high}
        return pd.DataFrame(columns)

    def overall(self, what: str) -> Share:
        """Clean or robust accuracy over all held-out images in the epoch shown."""
        row, table = self.shown, self.by_class()
        if row is None or what not in row:
            return Share(float("nan"))
        low, high = self._bounds(np.asarray([float(row[what])]), np.asarray([table["n"].sum()]))
        return Share(float(row[what]), float(low[0]), float(high[0]))

    def worst(self) -> tuple[tuple[str, ...], Share]:
        """The classes of the lowest robust accuracy in the epoch shown, with the interval of the worst class."""
        table = self.by_class().dropna(subset=["robust"])
        if table.empty:
            return (), Share(float("nan"))
        lowest = float(table["robust"].min())
        tied = tuple(table["class"][table["robust"] == lowest])
        if self.images is None:
            return tied, Share(lowest)
        robust, support = table["robust"].to_numpy(dtype=float), table["n"].to_numpy()
        low, high = worst.bounds(np.rint(robust * support).astype(np.int64), support, CONFIDENCE)
        return tied, Share(lowest, float(low), float(high))

    def average(self) -> float:
        """The mean of the classes' robust accuracies in the epoch shown."""
        values = self.by_class()["robust"].to_numpy(dtype=float)
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    def _bounds(self, values: Array, support: Array) -> tuple[Array, Array]:
        """Wilson's intervals; not defined where the number of images is not known."""
        low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
        known = (support > 0) & np.isfinite(values)
        if known.any():
            correct = np.rint(values[known] * support[known]).astype(np.int64)
            low[known], high[known] = intervals.bounds(correct, support[known], CONFIDENCE)
        return low, high


_SHOWN = ("clean", "robust")


def _known(row: pd.Series[Any], what: str) -> Array:
    values: Array = np.asarray([row[name] for name in row.index if str(name).startswith(f"{what}:")], dtype=float)
    return np.asarray(values[~np.isnan(values)])
