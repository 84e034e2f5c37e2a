"""The tables of a comparison of groups: a row per group and number, with means, differences, verdicts and power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from classwise.stats import comparisons
from classwise.stats.intervals import Array
from classwise.stats.over_seeds import MeanOverSeeds, Measured


@dataclass(frozen=True)
class GroupTable:
    """What makes the tables: where the runs of each group are, the control, the pairs, the confidence, and whether the
    variance over seeds is pooled over the groups."""

    places: Mapping[str, Array]
    control: str
    paired: Mapping[str, list[int] | None]
    confidence: float
    pooled: bool = False

    def made(self, kind: str, names: Sequence[str], numbers: Measured, images: Array) -> pd.DataFrame:
        """A row per group and number: means and differences. images: of each share, 0 for what is no share."""
        return pd.concat(
            [self._of_group(kind, names, group, numbers, images) for group in self.places], ignore_index=True
        )

    def judged(self, table: pd.DataFrame, numbers: Measured, families: Sequence[Any]) -> pd.DataFrame:
        """The table with corrected p-values, verdicts and power; families: rows that are corrected for together."""
        alpha, size = 1 - self.confidence, len(numbers.values)
        table = table.assign(p_holm=np.nan, verdict="", detectable=np.nan, seeds_needed=np.nan)
        planned, next_level = np.full(len(table), np.nan), np.full(len(table), np.nan)
        for rows in families:
            p = table.loc[rows, "p"].to_numpy(dtype=np.float64)
            corrected, tests = comparisons.holm(p), int(np.isfinite(p).sum())
            table.loc[rows, "p_holm"] = corrected
            planned[rows] = alpha / max(tests, 1)
            # what Holm asks of the next test once those that are decided are out of the way
            next_level[rows] = alpha / max(tests - int((corrected < alpha).sum()), 1)
        tested, decided = table["p"].notna(), table["p_holm"] < alpha
        direction = np.where(table["difference"] > 0, "higher", "lower")
        table["verdict"] = np.where(tested, np.where(decided, direction, "undecided"), "")
        for place, group in enumerate(self.places):
            if group == self.control:
                continue
            rows = slice(place * size, (place + 1) * size)
            found = self._difference(group, numbers)
            table.loc[table.index[rows], "detectable"] = found.detectable(planned[rows])
            table.loc[table.index[rows], "seeds_needed"] = found.seeds_needed(next_level[rows])
        return table

    def _of_group(self, kind: str, names: Sequence[str], group: str, numbers: Measured, images: Array) -> pd.DataFrame:
        mean = numbers.mean(self.places[group])
        ends = zip(mean.interval(self.confidence), mean.share_interval(images, self.confidence), strict=True)
        low, high = (np.where(images > 0, share, plain) for plain, share in ends)
        columns = {
            "group": group,
            kind: names,
            "seeds": len(self.places[group]),
            "mean": mean.value,
            "sd": mean.deviation,
            "low": low,
            "high": high,
        }
        return pd.DataFrame({**columns, **self._against(group, numbers)})

    def _against(self, group: str, numbers: Measured) -> dict[str, Any]:
        keys = ("difference", "difference_sd", "difference_low", "difference_high", "df", "p")
        if group == self.control:
            return {"paired": False, **dict.fromkeys(keys, np.nan)}
        found = self._difference(group, numbers)
        low, high = found.interval(self.confidence)
        deviation = self._alone(group, numbers).deviation
        values = (found.value, deviation, low, high, found.freedom(), found.p_value())
        return {"paired": self.paired[group] is not None, **dict(zip(keys, values, strict=True))}

    def _difference(self, group: str, numbers: Measured) -> MeanOverSeeds:
        found = self._alone(group, numbers)
        if not self.pooled:
            return found
        groups = [self._in_order(name) for name in self.places]
        return replace(found, spread=numbers.pooled(groups)[None], pooled=len(groups) - 1)

    def _alone(self, group: str, numbers: Measured) -> MeanOverSeeds:
        """The difference with the variance of its own pairs."""
        paired = self.paired[group] is not None
        return numbers.difference(self.places[self.control], self._in_order(group), paired)

    def _in_order(self, group: str) -> Array:
        """Its runs, those of pairs in the order of the control's."""
        partners = self.paired.get(group)
        return self.places[group] if partners is None else self.places[group][partners]
