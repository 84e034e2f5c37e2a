"""What another background does to a class: tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.records import Records
from classwise.metrics import confusion, difference
from classwise.stats import comparisons
from classwise.studies.background import mask_quality
from classwise.studies.background.views import KINDS, ORIGINAL, Views, behind_own_masks
from classwise.studies.shared.verdicts import LEVEL

LISTED = 10  # images in the table of the most robust ones
NO_MASK = "no mask"  # why an image without one is left out
_WIDEST = 20  # classes that have columns of their own


def predictions(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """Table 4: the predictions for images of the class; of many classes only the most frequent ones."""
    front, rows = [], []
    for model, own in models.items():
        for kind in KINDS:
            for view, records in own.items():
                rows.append(confusion.compute(records[kind])[records[kind].class_names.index(name)])
                front.append({"model": model, "background": view, "prediction": kind, "n": int(rows[-1].sum())})
    counts = pd.DataFrame(rows, columns=list(next(iter(models.values()))[ORIGINAL]["natural"].class_names))
    often = counts.sum().drop(name).sort_values(ascending=False, kind="stable").index[: _WIDEST - 1]
    kept = counts[[column for column in counts if column == name or column in often]]
    if len(kept.columns) < len(counts.columns):
        kept = kept.assign(**{"(others)": counts.sum(axis=1) - kept.sum(axis=1)})
    return pd.concat([pd.DataFrame(front), kept], axis=1)


def changes(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """The class on each background against the original, and on the first against every control, image by image."""
    rows = []
    for model, own in models.items():
        first, *others = [view for view in own if view != ORIGINAL]
        pairs = [(ORIGINAL, view) for view in (first, *others)] + [(view, first) for view in others]
        for kind in KINDS:
            for against, view in pairs:
                row = compared(own[against][kind], own[view][kind], name)
                shown = {"model": model, "background": view, "against": against, "prediction": kind}
                rows.append({**shown, "n": int(row["n_first"]), **_change(row), "p": row["p"]})
    table = pd.DataFrame(rows)
    holm = table.groupby(["model", "prediction"])["p"].transform(lambda p: comparisons.holm(p.to_numpy()))
    return table.drop(columns="p").assign(**{"p (Holm)": holm})


def compared(before: Records, after: Records, name: str, confidence: float = 1 - LEVEL) -> pd.Series[Any]:
    """The class's row of the paired difference."""
    table = difference.compute(before, after, confidence=confidence)
    return table[table["class"] == name].iloc[0]


def _change(row: pd.Series[Any]) -> dict[str, float]:
    names = {"first": "before (%)", "second": "after (%)", "difference": "change (points)"}
    return {names.get(column, column): 100 * float(row[column]) for column in (*names, "low", "high")}


def by_class(models: Mapping[str, Views]) -> pd.DataFrame:
    """What the first background does to each class, natural and adversarial."""
    rows = []
    for model, own in models.items():
        first = behind_own_masks(own)[0]
        for kind in KINDS:
            for _, row in difference.compute(own[ORIGINAL][kind], own[first][kind]).iloc[:-1].iterrows():
                front = {"model": model, "prediction": kind, "class": row["class"], "n": int(row["n_first"])}
                rows.append({**front, **_change(row), "p (Holm)": row["p_holm"]})
    return pd.DataFrame(rows)


def misclassified_as(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """How many images of other classes are misclassified as the class, before and after."""
    rows = []
    for model, own in models.items():
        for view in (view for view in own if view != ORIGINAL):
            for kind in KINDS:
                before, after = (_predicted_as(own[which][kind], name) for which in (ORIGINAL, view))
                if not len(before):
                    continue
                row = compared(before, after, name)
                shown = {"model": model, "background": view, "prediction": kind, "n": len(before)}
                rows.append({**shown, **_change(row)})
    return pd.DataFrame(rows)


def _predicted_as(records: Records, name: str) -> Records:
    """The images of other classes, "right" where they are misclassified as this one."""
    number = records.class_names.index(name)
    others = records.take(np.flatnonzero(records.label != number))
    return replace(others, frame=others.frame.assign(label=number))


def most_robust(own: Views, quality: pd.DataFrame, name: str) -> pd.DataFrame:
    """The images of the class with the highest probability of it under attack, and how bright their background is."""
    rows = ranked(own, quality, name).head(LISTED)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(rows) + 1),
            "index": rows.index,
            "attacked: probability (%)": 100 * rows["attacked"].to_numpy(),
            "natural: probability (%)": 100 * rows["natural"].to_numpy(),
            "background brightness (%)": 100 * rows["brightness"].to_numpy(),
        }
    )


def ranked(own: Views, quality: pd.DataFrame, name: str) -> pd.DataFrame:
    """The class's images by index: probability of the class, attacked and natural, and background brightness."""
    parts = {}
    for column, kind in (("attacked", "adversarial"), ("natural", "natural")):
        records = own[ORIGINAL][kind]  # type: ignore[index]
        inside = records.label == records.class_names.index(name)
        parts[column] = pd.Series(records.frame["true_prob"].to_numpy()[inside], index=records.index[inside])
    bright = quality.set_index("index")["brightness"]
    return pd.DataFrame(parts).join(bright).sort_values("attacked", ascending=False, kind="stable")


def quality_by_class(quality: pd.DataFrame, class_names: Sequence[str]) -> pd.DataFrame:
    """The masks' measures by class for reading; images without a mask and refused ones were left out."""
    given = quality[quality["refused"] != NO_MASK].fillna({"refused": ""}).astype({"border": float})
    table = mask_quality.by_class(given, class_names)
    shares = ["share", "border", "converged", "empty", "too small", "too large", "refused"]
    table[shares] *= 100
    labels = range(len(class_names))
    table["edge of random masks"] = given.groupby("label")["edge_of_random"].median().reindex(labels).to_numpy()
    absent = quality[quality["refused"] == NO_MASK].groupby("label").size()
    table["without a mask"] = absent.reindex(labels, fill_value=0).to_numpy()
    return table.rename(columns={column: f"{column} (%)" for column in shares})
