"""Accuracy of each class along the radius: points of the curve, its area, and the median distance to an error.

An audit along several radii holds one attack per radius, all of one family, smallest first. With a(ε) the accuracy at
radius ε, a(0) on clean images and E the largest radius,

    area = (1/E) ∫₀ᴱ a(ε) dε by trapezoids: the mean accuracy over all radii up to E;
    median distance = the smallest radius at which at least half of the class's examples are known to be broken.

Distances are those the attack found, so the median is an upper bound of the true one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from classwise.core.errors import UserError, check_known
from classwise.core.meta import AttackInfo
from classwise.core.per_class import PerClass
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy
from classwise.stats.intervals import Array

PAPERS = ()  # ours, or common knowledge


def compute(records: Records, confidence: float = 0.95) -> pd.DataFrame:
    """The points: family, eps, class, n, accuracy, low and high (Wilson); the clean images are every family's eps 0.

    An attack that saw only the survivors counts together with all that ran before it.
    """
    points = []
    for family, members in families(records).items():
        for eps, name in members.items():
            values = accuracy.compute(_rows(records, name), confidence=confidence).to_frame()
            points.append(values.rename(columns={"value": "accuracy"}).assign(family=family, eps=eps))
    table = pd.concat(points, ignore_index=True)
    return table[["family", "eps", "class", "n", "accuracy", "low", "high"]]


def areas(records: Records) -> pd.DataFrame:
    """One row per family and class: family, class, n, eps (the largest), area, median_distance.

    The median is infinite where fewer than half of the examples are known to break.
    """
    if CLEAN not in records.attacks:
        raise UserError("the area under a curve begins at the clean images, and these records hold none.")
    points = compute(records)
    tables = []
    for family, members in families(records).items():
        own = points[points["family"] == family]
        values = own["accuracy"].to_numpy().reshape(len(members), records.num_classes)
        eps = np.array(list(members))
        if len(eps) < 2:
            continue  # clean alone
        area = (np.diff(eps)[:, None] * (values[1:] + values[:-1]) / 2).sum(0) / eps[-1]
        table = own.iloc[: records.num_classes][["family", "class", "n"]].reset_index(drop=True)
        median = _median_by_class(nearest(records, list(members.values())), records)
        tables.append(table.assign(eps=eps[-1], area=area, median_distance=median))
    if not tables:
        raise UserError("these records hold no attack: there is no curve. Audit with at least one.")
    return pd.concat(tables, ignore_index=True)


def at(records: Records, eps: float, attack: str | None = None, confidence: float = 0.95) -> PerClass:
    """Robust accuracy at any radius, from an attack that recorded minimal distances (all such attacks together if none
    is named): robust is what is not known to break within `eps`."""
    known = [name for name in records.attacks if _info(records, name).settings.get("minimal") is True]
    if not known:
        raise UserError(
            "no attack of these records looked for minimal distances. Audit with distances=True (--distances) and an "
            "attack that can."
        )
    check_known("attack with minimal distances", known, attack)
    names = known if attack is None else [attack]
    for name in names:
        records.of(name).single()  # one that saw only some examples says nothing of a class
    distances = nearest(records, names)
    robust = distances > eps * (1 + 1e-5) + 1e-6  # the slack with which an audit judges
    label = _labels(records, distances.index)
    size = records.num_classes
    correct, support = np.bincount(label[robust.to_numpy()], minlength=size), np.bincount(label, minlength=size)
    return accuracy.of_counts(records, correct, support, confidence)


def families(records: Records) -> dict[str, dict[float, str]]:
    """The attack of each radius, smallest first, by family; clean is the first of every family."""
    found: dict[str, dict[float, str]] = {}
    for name in _ran(records):
        if name == CLEAN:
            continue
        info = _info(records, name)
        eps = records.meta.eps if info.eps is None else info.eps
        found.setdefault(info.family or name, {})[eps] = name
    start = {0.0: CLEAN} if CLEAN in records.attacks else {}
    return {family: {**start, **dict(sorted(members.items()))} for family, members in (found or {CLEAN: {}}).items()}


def _info(records: Records, name: str) -> AttackInfo:
    return records.meta.attacks.get(name, AttackInfo())


def _rows(records: Records, name: str) -> Records:
    """The rows that say of every example whether it survives an attack."""
    if _info(records, name).coverage == "survivors" and CLEAN in records.attacks:
        return records.worst_case(_up_to(records, name))
    return records.of(name)


def _ran(records: Records) -> tuple[str, ...]:
    """The attacks in order; also one that found no survivor and has no row."""
    infos, present = records.meta.attacks, records.attacks
    whole = CLEAN in present
    empty = [name for name, info in infos.items() if info.coverage == "survivors" and whole and name not in present]
    order = [name for name in infos if name in present or name in empty]
    return tuple(dict.fromkeys((*order, *present)))


def _up_to(records: Records, name: str) -> Sequence[str]:
    ran = _ran(records)
    return ran[: ran.index(name) + 1]


def nearest(records: Records, names: Sequence[str]) -> pd.Series[float]:
    """Each example's smallest known distance to an error, over the named attacks and the clean image."""
    counted = {CLEAN, *names}
    for name in names:
        if _info(records, name).coverage == "survivors":
            counted |= set(_up_to(records, name))
    rows = records.frame[records.frame["attack"].isin(counted)]
    return rows.groupby("index")["minimal"].min()


def _labels(records: Records, index: pd.Index[int]) -> Array:
    return records.frame.drop_duplicates("index").set_index("index")["label"].reindex(index).to_numpy()


def _median_by_class(distances: pd.Series[float], records: Records) -> Array:
    """The lower median of each class; NaN for a class without examples."""
    by_class = distances.groupby(_labels(records, distances.index))
    return by_class.quantile(0.5, interpolation="lower").reindex(range(records.num_classes)).to_numpy()
