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

Only attacks whose distances mean something are rated: those that minimise the distance (audits with ``--distances``),
and families that ran at several radii, for which the smallest radius that broke the image is an upper bound. Without
two of them there is nothing to compare, and the table is empty.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from classwise.core.records import CLEAN, Records
from classwise.metrics import curve

COLUMNS = ["attack", "class", "n", "area", "best_area", "largest", "optimality", "never_broken"]


def compute(records: Records) -> pd.DataFrame:
    """One row per rated attack and class: attack, class, n, area A, best_area A*, largest D, optimality, and how many
    images no attack broke. NaN where a class has no images, or none that an attack could still break."""
    rated = rated_attacks(records)
    if len(rated) < 2 or CLEAN not in records.attacks:
        return pd.DataFrame(columns=COLUMNS)
    labels = records.of(CLEAN).frame.set_index("index")["label"]
    everything = records.frame.groupby("index")["minimal"].min().reindex(labels.index).fillna(np.inf)
    wrong = ~pd.Series(records.of(CLEAN).correct, index=labels.index)
    best = everything.where(~wrong, 0.0).to_numpy(dtype=np.float64)
    tables = []
    for name, members in rated.items():
        own = curve.nearest(records, members).reindex(labels.index).fillna(np.inf)
        distance = own.where(~wrong, 0.0).to_numpy(dtype=np.float64)
        for number, class_name in enumerate(records.class_names):
            chosen = (labels == number).to_numpy()
            row = _of_class(distance[chosen], best[chosen]) if chosen.any() else dict.fromkeys(COLUMNS[3:], np.nan)
            tables.append({"attack": name, "class": class_name, "n": int(chosen.sum()), **row})
    return pd.DataFrame(tables, columns=COLUMNS)


def _of_class(distance: np.ndarray, best: np.ndarray) -> dict[str, float]:
    finite = np.isfinite(best)
    largest = float(best[finite].max()) if finite.any() else 0.0
    area, best_area = (float(np.minimum(values, largest).mean()) for values in (distance, best))
    span = float((best > 0).mean()) * largest - best_area
    return {
        "area": area,
        "best_area": best_area,
        "largest": largest,
        "optimality": 1 - (area - best_area) / span if span > 0 else np.nan,
        "never_broken": int((~finite).sum()),
    }


def rated_attacks(records: Records) -> dict[str, list[str]]:
    """The attacks whose distances can be rated: by family or name, the attacks that belong to it."""
    several = {
        family: [name for name in members.values() if name != CLEAN]
        for family, members in curve.families(records).items()
        if sum(name != CLEAN for name in members.values()) > 1
    }
    in_family = {name for members in several.values() for name in members}
    minimal = [
        name
        for name in records.attacks
        if name not in in_family and records.meta.attacks[name].settings.get("minimal") is True
    ]
    return {**several, **{name: [name] for name in minimal}}
