"""What methods that raise the worst class gain by the papers' printed numbers, to stand beside measured gains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from classwise.published.fair_methods import fair_methods
from classwise.published.printed_worst import worst_classes

_SAME = ["paper", "place", "data", "network"]
_ATTACKS = ("pgd", "autoattack")


def printed_gains(data: str = "cifar10", attack: str | None = "autoattack") -> pd.DataFrame:
    """What the papers' methods gain on the training they are compared with, in points.

    data: the data set. attack: "pgd", "autoattack", or None for both.
    Columns: method (its name here), worst, average (NaN where not printed), attack, network, against, paper, place.
    """
    rows = pd.DataFrame([*_newer(), *_of_wat()])
    rows = rows[(rows["data"] == data) & (True if attack is None else rows["attack"] == attack)]
    columns = ["method", "worst", "average", "attack", "network", "against", "paper", "place"]
    return rows[columns].dropna(subset=["worst"]).round(2).reset_index(drop=True)


def _newer() -> Iterator[dict[str, Any]]:
    rows = fair_methods()
    for _, row in rows[(rows["against"] != "") & (rows["method"] != "")].iterrows():
        same = (rows[_SAME] == row[_SAME]).all(axis=1) & (rows["printed"] == row["against"])
        (base,) = (own for _, own in rows[same].iterrows())
        for attack in _ATTACKS:
            gained = {"worst": row[f"worst_{attack}"] - base[f"worst_{attack}"], "average": row[attack] - base[attack]}
            yield {**row[[*_SAME, "method", "against"]], **gained, "attack": attack}


def _of_wat() -> Iterator[dict[str, Any]]:
    """Table 1 of WAT's paper, whose first row of each data set is TRADES."""
    item = "li2023:table1"
    known = worst_classes()
    known = known[known["item"] == item]
    for (data, kind), own in known.groupby(["data", "kind"], sort=False):
        base = own[own["method"] == "trades"].iloc[0]
        for _, row in own[own["method"] != "trades"].iterrows():
            gained = {name: 100 * (row[name] - base[name]) for name in ("worst", "average")}
            about = {"paper": "li2023", "place": "table1", "data": data, "network": row["network"], "attack": kind}
            yield {**about, **gained, "method": row["method"], "against": "TRADES"}
