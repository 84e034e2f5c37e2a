"""What leaving out a class does to the images that were broken into it: one row per image, and tables of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy, confound, difference, misclassified, vulnerable
from classwise.stats import comparisons, intervals
from classwise.stats.intervals import Array
from classwise.studies.shared.together import columns_in_percent
from classwise.studies.shared.verdicts import LEVEL


def fates(base: Records, without: Mapping[str, Records]) -> pd.DataFrame:
    """One row per image the base model is broken on, of those whose confound was left out of a training.

    Columns: class, confound, home (robust without the confound), elsewhere (the share of the models without another
    class, neither its own nor its confound, on which it is robust; NaN if there is none).
    """
    names = np.asarray(base.class_names, dtype=object)
    rows = base.take(np.flatnonzero(~base.correct))
    answers = {name: pd.Series(other.correct.astype(float), other.index) for name, other in without.items()}
    robust = pd.DataFrame({name: own.reindex(rows.index) for name, own in answers.items()}).to_numpy()
    own, confounds = names[rows.label], names[rows.prediction]
    at = pd.Index(list(without)).get_indexer(pd.Index(confounds))
    removed = np.asarray(list(without), dtype=object)[None, :]
    lost = np.isnan(robust) & (removed != own[:, None])
    if lost.any():
        raise UserError(
            f"the audit without {removed[0, np.argwhere(lost)[0, 1]]} lacks {int(lost.sum())} of the images that the "
            "base model is broken on: audit all models on the same images."
        )
    others = ~np.isnan(robust) & (removed != confounds[:, None])
    elsewhere = intervals.ratio(np.where(others, robust, 0).sum(axis=1), others.sum(axis=1))
    kept = np.flatnonzero(at >= 0)
    columns = {"class": own[kept], "confound": confounds[kept], "home": robust[kept, at[kept]]}
    return pd.DataFrame({**columns, "elsewhere": elsewhere[kept]}, index=pd.Index(rows.index[kept], name="index"))


def matrix(broken: pd.DataFrame, class_names: tuple[str, ...]) -> Array:
    """The homing matrix: rows true class, columns the class left out; 0 where a class never was."""
    counts = broken.pivot_table(index="class", columns="confound", values="home", aggfunc="sum")
    return counts.reindex(index=class_names, columns=class_names).fillna(0).to_numpy().astype(np.int64)


def by_class(base: Records, broken: pd.DataFrame) -> pd.DataFrame:
    """What happens to the broken images of each class, with simultaneous intervals (Šidák)."""
    robust, weak = accuracy.compute(base), vulnerable.compute(base).vulnerable
    table = _rates(broken, ["class"], simultaneous=True).set_index("class").reindex(list(base.class_names))
    front = pd.DataFrame(
        {
            "class": base.class_names,
            "n": robust.support,
            "robust (%)": 100 * robust.values,
            "vulnerable": ["yes" if name in weak else "no" for name in base.class_names],
        }
    )
    counted = table.fillna({"broken": 0, "home": 0}).astype({"broken": int, "home": int})
    return pd.concat([front, counted.reset_index(drop=True)], axis=1)


def by_pair(broken: pd.DataFrame) -> pd.DataFrame:
    """What happens to the images of each class broken into each class, the most frequent first."""
    return _rates(broken, ["class", "confound"]).sort_values(
        "broken", ascending=False, kind="stable", ignore_index=True
    )


def _rates(broken: pd.DataFrame, by: list[str], simultaneous: bool = False) -> pd.DataFrame:
    table = (
        broken.groupby(by, sort=False)
        .agg(broken=("home", "size"), home=("home", "sum"), elsewhere=("elsewhere", "mean"))
        .reset_index()
    )
    home, n = table["home"].to_numpy(), table["broken"].to_numpy()
    low, high = intervals.bounds(home, n, intervals.sidak(0.95, len(table)) if simultaneous else 0.95)
    shown = 100 * pd.DataFrame({"home (%)": intervals.ratio(home, n), "low": low, "high": high})
    shown["another class left out (%)"] = 100 * table["elsewhere"]
    return pd.concat([table.drop(columns="elsewhere").astype({"home": int}), shown], axis=1)


def mutual(base: Records) -> list[tuple[int, int]]:
    """The pairs of class numbers that are each other's most frequent confound."""
    into = confound.compute(base).number
    return [(i, int(j)) for i, j in enumerate(into) if i < j and into[j] == i]


def relations(base: Records, broken: pd.DataFrame) -> pd.DataFrame:
    """The pairs of classes that are each other's confound: images in each direction, and how many have the property."""
    names = base.class_names
    counts, home = misclassified.compute(base), matrix(broken, names)
    columns = ["first", "second", "first into second", "of these home", "second into first", "of those home"]
    rows = [(names[i], names[j], counts[i, j], home[i, j], counts[j, i], home[j, i]) for i, j in mutual(base)]
    return pd.DataFrame(rows, columns=columns)


def changes(base: Records, without: Mapping[str, Records]) -> pd.DataFrame:
    """The change of each class's robustness when another is left out, paired by image; p corrected by Holm over all."""
    tables = []
    for removed, rows in without.items():
        table = difference.compute(base, _renumbered(rows, base)).query("`class` not in [@removed, @difference.ALL]")
        tables.append(table.assign(without=removed))
    whole = pd.concat(tables, ignore_index=True)
    whole = columns_in_percent(whole, "first", "second", "difference", "low", "high")
    whole = whole.assign(p_holm=comparisons.holm(whole["p"].to_numpy()))
    shares = {"first": "robust before (%)", "second": "robust after (%)", "difference": "change (points)"}
    columns = {"n_first": "n", **shares}
    return whole.rename(columns=columns)[["without", "class", *columns.values(), "low", "high", "p", "p_holm"]]


def _renumbered(rows: Records, base: Records) -> Records:
    """The same rows with the class numbers of the base model."""
    new = np.array([base.class_names.index(name) for name in rows.class_names])
    frame = rows.frame.assign(label=new[rows.label], prediction=new[rows.prediction])
    meta = dataclasses.replace(rows.meta, class_names=base.class_names, superclasses=base.meta.superclasses)
    return Records(frame, meta)


def advice(base: Records, effect: pd.DataFrame) -> pd.DataFrame:
    """For each vulnerable class the one whose absence helps it most, to be weakened if the gain is significant."""
    own = effect[effect["class"].isin(vulnerable.compute(base).vulnerable) & effect["change (points)"].notna()]
    best = own.loc[own.groupby("class", sort=False)["change (points)"].idxmax()]
    best = best.sort_values("robust before (%)", kind="stable", ignore_index=True)
    sure = (best["change (points)"] > 0) & (best["p_holm"] < LEVEL)
    named = best.assign(weaken=best["without"].where(sure, "none (not significant)"))
    shown = ["class", "robust before (%)", "most helped by", "change (points)", "low", "high", "p_holm", "weaken"]
    return named.rename(columns={"without": "most helped by"})[shown]


def wide(counts: Array, names: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame({"true class": names, **{name: counts[:, place] for place, name in enumerate(names)}})
