"""Confusion under attack: true class by predicted class, ordered by superclass, readable up to 1000 classes.

Tian et al. (KDD 2021), Figure 2: with attacks most errors stay inside a superclass, and the matrix is nearly symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.figures.style import SEQUENTIAL, Chart, ordered
from classwise.metrics import confusion
from classwise.records import Records
from classwise.results import Audit

_MOST_LABELS = 40  # classes whose names are written along the axes
_MOST_NUMBERS = 12  # classes whose shares are written into the cells
_CELL = 26  # points, where there is room


def draw(records: Records, order: Sequence[str] | None = None, diagonal: bool = False) -> Chart:
    """Shares of each true class. Without the diagonal, which would outshine the errors, unless asked for.

    order: class names in the order wanted; by default superclass after superclass, where there are any.
    """
    names = ordered(records.class_names, order or _by_superclass(records))
    place = [records.class_names.index(name) for name in names]
    shares, counts = (m[np.ix_(place, place)] for m in (confusion.rates(records), confusion.compute(records)))
    rows, columns = np.indices(shares.shape).reshape(2, -1)
    frame = pd.DataFrame(
        {
            "true": np.take(names, rows),
            "predicted": np.take(names, columns),
            "share": shares.reshape(-1),
            "images": counts.reshape(-1),
        }
    )
    shown = frame if diagonal else frame[rows != columns]
    shown = shown[shown["images"] > 0] if len(names) > _MOST_LABELS else shown  # of a million cells most are empty
    side = _CELL * len(names) if len(names) <= _MOST_NUMBERS else 480
    labels = alt.Axis(labels=len(names) <= _MOST_LABELS, ticks=False, domain=False, labelOverlap=False)
    base = alt.Chart(shown, width=side, height=side).encode(
        x=alt.X("predicted:N", sort=names, axis=labels, title="predicted", scale=alt.Scale(domain=names)),
        y=alt.Y("true:N", sort=names, axis=labels, title="true class", scale=alt.Scale(domain=names)),
        tooltip=["true", "predicted", alt.Tooltip("share", format=".1%"), "images"],
    )
    cells = base.mark_rect().encode(
        color=alt.Color("share", scale=alt.Scale(scheme=SEQUENTIAL), legend=alt.Legend(format="%", title="share"))
    )
    if len(names) > _MOST_NUMBERS:
        return cells
    dark = alt.datum.share > 0.6 * max(float(shown["share"].max()), 1e-9)
    numbers = base.mark_text(fontSize=8).encode(
        text=alt.Text("share", format=".0%"),
        color=alt.condition(dark, alt.value("white"), alt.value("black")),
        opacity=alt.condition(alt.datum.images > 0, alt.value(1), alt.value(0)),
    )
    return cells + numbers


def _by_superclass(records: Records) -> list[str] | None:
    groups = records.meta.superclasses
    return None if groups is None else [name for members in groups.values() for name in members]


def from_runs(
    audits: Mapping[str, Audit], attack: str | None = None, order: tuple[str, ...] | None = None, diagonal: bool = False
) -> Chart:
    """The confusion of each audit, side by side."""
    charts = [draw(a.rows(attack), order, diagonal).properties(title=name) for name, a in audits.items()]
    return charts[0] if len(charts) == 1 else alt.hconcat(*charts)
