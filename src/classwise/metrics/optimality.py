"""How near an attack comes to the best known distances, class by class: 1 is the best known attack, 0 is no attack.

With d_i the smallest distance at which attack a is known to break image i of a class (0 where the clean image is
misclassified, infinite where a never broke it), d*_i = min over all attacks that ran, and D = max of the finite d*_i,

    a(ε) = share of images with d_i > ε,   A  = ∫₀ᴰ a(ε) dε  = mean of min(d_i, D)
                                           A* = the same of d*_i
    optimality = 1 − (A − A*) / (clean·D − A*),   clean = share of images with d*_i > 0

This is the local optimality of Cinà et al. (AttackBench, AAAI 2025) for one model and one class: the area between the
attack's curve of accuracy against the radius and the lower envelope of all attacks, as a share of the area that an
attack which breaks nothing leaves. Their code joins the points of the curves by trapezoids; here the area under the
steps is exact. An image that no attack broke counts as D for every attack and moves nothing.

Distances mean something for attacks that minimise them (audits with ``--distances``) and for families that ran at
several radii, where the smallest radius that broke an image is an upper bound: `rated_attacks`. With one attack there
is nothing to compare: it is its own best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from classwise.core.records import CLEAN, Records
from classwise.metrics import curve
from classwise.stats.intervals import Array

PAPERS = ("cina2025",)

COLUMNS = ["attack", "class", "n", "area", "best_area", "largest", "optimality", "never_broken"]


def compute(records: Records, attacks: Mapping[str, Sequence[str]] | None = None) -> pd.DataFrame:
    """One row per attack and class: attack, class, n, area A, best_area A*, largest D, optimality, and how many images
    no attack broke. NaN where a class has no images, or none that an attack could still break.

    attacks: by name those that belong together, by default every attack by itself.
    """
    names = [name for name in records.attacks if name != CLEAN]
    for name in names:
        if CLEAN not in records.attacks:
            records.of(name).single()  # one that saw only some examples says nothing of a class
    labels = records.frame.drop_duplicates("index").set_index("index")["label"]
    clean = records.take(np.flatnonzero((records.frame["attack"] == CLEAN).to_numpy()))
    wrong = pd.Series(np.isin(labels.index, clean.index[~clean.correct]), index=labels.index)
    best = _distances(records.frame.groupby("index")["minimal"].min(), wrong)
    rows = []
    for name, members in (attacks or {name: [name] for name in names}).items():
        own = _distances(curve.nearest(records, members), wrong)
        for number, class_name in enumerate(records.class_names):
            chosen = (labels == number).to_numpy()
            row = _of_class(own[chosen], best[chosen]) if chosen.any() else dict.fromkeys(COLUMNS[3:], np.nan)
            rows.append({"attack": name, "class": class_name, "n": int(chosen.sum()), **row})
    return pd.DataFrame(rows, columns=COLUMNS)


def _distances(found: pd.Series[float], wrong: pd.Series[bool]) -> Array:
    """In the order of `wrong`; 0 where an image is misclassified without an attack."""
    return found.reindex(wrong.index).fillna(np.inf).where(~wrong, 0.0).to_numpy(dtype=np.float64)


def _of_class(distance: Array, best: Array) -> dict[str, float]:
    finite = np.isfinite(best)
    largest = float(best[finite].max()) if finite.any() else 0.0
    area, best_area = (float(np.minimum(values, largest).mean()) for values in (distance, best))
    span = float((best > 0).mean()) * largest - best_area
    return {
        "area": area,
        "best_area": best_area,
        "largest": largest,
        "optimality": 1 - (area - best_area) / span if span > 0 else np.nan,
        "never_broken": float((~finite).sum()),
    }


def rated_attacks(records: Records) -> dict[str, list[str]]:
    """The attacks whose distances mean something, by family or name, each with the attacks that belong to it. An attack
    that saw only the survivors of others is not rated."""
    infos = {name: info for name, info in records.meta.attacks.items() if info.coverage == "all"}
    several = {
        family: [name for name in members.values() if name in infos and name != CLEAN]
        for family, members in curve.families(records).items()
        if sum(name in infos and name != CLEAN for name in members.values()) > 1
    }
    in_family = {name for members in several.values() for name in members}
    minimal = [name for name in records.attacks if name in infos and infos[name].settings.get("minimal") is True]
    return {**several, **{name: [name] for name in minimal if name not in in_family}}
