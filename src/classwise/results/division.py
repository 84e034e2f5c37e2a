"""A division of a leaderboard: comparable models, their numbers, and their ranks by the worst class with intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import check_known
from classwise.core.format import listed
from classwise.core.records import CLEAN
from classwise.metrics import accuracy, average, cv, difference, mcd, tail, worst
from classwise.results.drafts import Draft
from classwise.results.submissions import Submission
from classwise.stats import comparisons, ranks

MANY = 20  # classes from which on the bottom tenth is more than the worst class

#: The columns a board may be sorted by, and whether the highest value comes first.
SORTS = {
    "worst": True, "rank": False, "name": False, "clean": True, "average": True, "cv": False, "mcd": False,
    "bottom_tenth": True, "training_seconds": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Division:
    """Models that are ranked together. Accuracies are fractions, `cv` is in percent².

    attack: the rows that decide. kinds: the attacks as they were asked for. rows: see `Leaderboard.table`.
    p: of each model (rows) having a more accurate worst class than each other (columns), Holm over all of them.
    classes: the accuracy of each class (columns) of each model (rows). families: see `Leaderboard.families`.
    """

    title: str
    data: str
    threat: str
    norm: str
    eps: float
    attack: str
    kinds: tuple[str, ...]
    images: int
    submissions: tuple[Submission, ...]
    rows: pd.DataFrame
    p: pd.DataFrame
    classes: pd.DataFrame
    families: pd.DataFrame

    def sentence(self) -> str:
        """Which models may be first."""
        first = [str(name) for name in self.rows["name"][self.rows["rank_low"] == 1]]
        if len(self.rows) == 1:
            return f"{first[0]} is alone: nothing comparable was given."
        if len(first) == 1:
            return f"{first[0]} has the most accurate worst class of {len(self.rows)} models, beyond chance."
        return f"{len(first)} of {len(self.rows)} models may be first: {listed(first)}."

    def sorted_by(self, column: str) -> Division:
        """The same with its rows sorted by a column, the best value first."""
        check_known("column to sort by", SORTS, column)
        order = self.rows.sort_values(column, ascending=not SORTS[column], na_position="last", kind="stable").index
        places = order.to_numpy()
        return dataclasses.replace(
            self,
            submissions=tuple(self.submissions[place] for place in places),
            rows=self.rows.loc[order].reset_index(drop=True),
            p=self.p.iloc[places, places],
            classes=self.classes.iloc[places],
        )


def of(title: str, group: Sequence[Draft], confidence: float) -> Division:
    """The division of comparable drafts, the best first."""
    names = [one.submission.name for one in group]
    correct = np.stack([one.rows.correct for one in group])
    first = group[0]
    p = ranks.compare_all(correct, first.rows.label)
    low, high = ranks.intervals(p, 1 - confidence)
    table = pd.DataFrame([_numbers(one, confidence) for one in group])
    table.insert(0, "rank", ranks.competition(table["worst"].to_numpy()))
    table.insert(1, "rank_low", low)
    table.insert(2, "rank_high", high)
    order = table.sort_values(["rank", "average"], ascending=[True, False], kind="stable").index.to_numpy()
    best = int(order[0])
    table["behind"] = table["worst"].iloc[best] - table["worst"]
    table["p_behind"] = p[best]
    table = pd.concat([table, _overall(group, best, confidence)], axis=1)
    classes = pd.DataFrame([accuracy.compute(one.rows).values for one in group], index=names)
    classes.columns = list(first.rows.class_names)
    table = table.iloc[order].reset_index(drop=True)
    return Division(
        title=title,
        data=first.data,
        threat=first.threat,
        norm=first.rows.meta.norm,
        eps=first.rows.meta.eps,
        attack=first.attack,
        kinds=first.kinds,
        images=len(first.rows),
        submissions=tuple(group[place].submission for place in order),
        rows=table,
        p=pd.DataFrame(p, index=names, columns=names).iloc[order, order],
        classes=classes.iloc[order],
        families=_families(table, [group[place].submission for place in order]),
    )


def _numbers(one: Draft, confidence: float) -> dict[str, Any]:
    """The numbers of a model by itself."""
    submission, audit, rows = one.submission, one.audit, one.rows
    lowest = worst.compute(rows, confidence=confidence)
    clean = audit.rows(CLEAN) if CLEAN in audit.names else None
    clean = None if clean is None else clean.take(np.flatnonzero(np.isin(clean.index, rows.index)))
    seen = accuracy.seen(rows)
    costs = [cost.get("seconds", 0.0) for cost in audit.timing.get("attacks", {}).values()]
    return {
        "name": submission.name,
        "method": submission.method,
        "architecture": submission.architecture,
        "seed": submission.seed,
        "clean": float("nan") if clean is None else average.compute(clean),
        "average": average.compute(rows),
        "worst_class": lowest.label,
        "worst": lowest.value,
        "worst_low": lowest.low,
        "worst_high": lowest.high,
        "cv": cv.compute(rows),
        "mcd": mcd.compute(rows),
        "bottom_tenth": float(tail.lowest(seen, fraction=0.1).mean()) if len(seen) >= MANY else float("nan"),
        "training_seconds": submission.seconds,
        "epochs": submission.epochs,
        "audit_seconds": sum(costs) if costs else float("nan"),
        "folder": "" if audit.folder is None else str(audit.folder),
    }


def _overall(group: Sequence[Draft], best: int, confidence: float) -> pd.DataFrame:
    """The accuracy over all images of each model minus that of the best one, paired."""
    found = []
    for place, one in enumerate(group):
        row = None if place == best else difference.compute(group[best].rows, one.rows, True, confidence).iloc[-1]
        keys = {"difference": "overall_difference", "low": "overall_low", "high": "overall_high", "p": "overall_p"}
        found.append({name: np.nan if row is None else float(row[key]) for key, name in keys.items()})
    table = pd.DataFrame(found)
    table["overall_p"] = comparisons.holm(table["overall_p"].to_numpy(dtype=np.float64))
    return table


def _families(table: pd.DataFrame, submissions: Sequence[Submission]) -> pd.DataFrame:
    """Mean and range over the seeds of each recipe that has several; a model that is here twice counts once."""
    rows = table.assign(family=[one.family for one in submissions])
    found = []
    for family, several in rows[rows["family"] != ""].groupby("family", sort=False):
        own = several.drop_duplicates("seed")
        if len(own) > 1:
            method, network = (str(own[key].iloc[0]) for key in ("method", "architecture"))
            found.append(
                {
                    "family": f"{method}, {network}" if method else str(family),
                    "models": listed([str(name) for name in own["name"]]),
                    "seeds": len(own),
                    **{
                        f"{key}{end}": float(getattr(own[key], how)())
                        for key in ("worst", "average")
                        for end, how in (("", "mean"), ("_low", "min"), ("_high", "max"))
                    },
                    "rank_low": int(own["rank_low"].min()),
                    "rank_high": int(own["rank_high"].max()),
                }
            )
    return pd.DataFrame(found, columns=_FAMILY)


_FAMILY = [
    "family", "models", "seeds", "worst", "worst_low", "worst_high", "average", "average_low", "average_high",
    "rank_low", "rank_high",
]  # fmt: skip
