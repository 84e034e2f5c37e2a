"""Which images of a class are worth a look: the most fragile, the most robust, and those wrong without any attack.

fragile  correct as they are and broken by the attack, at the smallest radius first, then by the largest loss
robust   that survive every attack, by the smallest loss at the point the attack reached
wrong    misclassified as they are, the most confident first
"""

from __future__ import annotations

from typing import Literal

import pandas as pd

from classwise.core.records import CLEAN
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.stats import intervals

Kind = Literal["fragile", "robust", "wrong"]
KINDS: tuple[Kind, ...] = ("fragile", "robust", "wrong")


def notable(audit: Audit, most: int) -> pd.DataFrame:
    """At most so many images of each kind and class: index, label, kind, prediction, confidence, attack, rank.

    attack: the one that broke it, of fragile ones. Ordered by rank and, of the same rank, from the weakest class on, so
    that who has room for fewer takes the first.
    """
    rows, clean = audit.rows(), audit.rows(CLEAN)
    wrong = clean.frame[~clean.correct].assign(kind="wrong")
    if audit.headline == CLEAN:
        parts = [wrong]
    else:
        frame = rows.frame.assign(attack=_broken_by(audit))
        frame = frame.assign(radius=frame["attack"].map(_radii(audit)))
        fragile = frame[~rows.correct & ~frame["index"].isin(wrong["index"])]
        fragile = fragile.sort_values(["radius", "minimal", "loss"], ascending=[True, True, False], kind="stable")
        robust = frame[rows.correct].sort_values("loss", kind="stable")
        parts = [fragile.assign(kind="fragile"), robust.assign(kind="robust"), wrong]
    parts[-1] = wrong.sort_values("confidence", ascending=False, kind="stable")
    found = pd.concat(parts, ignore_index=True)
    found["rank"] = found.groupby(["kind", "label"]).cumcount()
    order = pd.Series(intervals.ratio(*accuracy.counts(rows))).rank(method="first", na_option="bottom")
    found["place"] = found["label"].map(order)
    chosen = found[found["rank"] < most].sort_values(["rank", "place", "kind"], kind="stable")
    return chosen[["index", "label", "kind", "prediction", "confidence", "attack", "rank"]].reset_index(drop=True)


def _broken_by(audit: Audit) -> pd.Series[str]:
    """The attack that broke each row of the headline; itself where there is one attack."""
    frame = audit.rows().frame
    return frame["broken_by"] if "broken_by" in frame else frame["attack"]


def _radii(audit: Audit) -> dict[str, float]:
    meta = audit.records.meta
    infos = {name: meta.attacks.get(name) for name in audit.names}
    return {name: meta.eps if info is None or info.eps is None else info.eps for name, info in infos.items()}
