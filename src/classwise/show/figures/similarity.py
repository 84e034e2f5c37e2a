"""Cosine similarity between classes beside their confusion: does a model confuse the classes that it sees as similar?

Benz et al. ("Robustness may be at odds with fairness", 2020), Section 3.2: cos(z̄_i, z̄_j) of the mean logit vectors of
two true classes, against the share of class i that is misclassified as class j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import fixed, percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.lines import apart
from classwise.show.figures.style import (
    MOST_LABELS,
    PALETTE,
    SEQUENTIAL,
    Chart,
    Look,
    label_angle,
    ordered,
    side_by_side,
    table,
    with_tooltips,
)
from classwise.stats.correlation import correlation

_NAMED_PAIRS = 5
_DOT = 0.65  # of a cell's side, the largest dot
_SEEN = 0.02  # of the largest share, below which a dot would be invisible
_CELL, _SIDE, _SCATTER = 22, 420, 220  # points: a cell where there is room, the matrix at most, the plot beside it
_LINE = 16  # points between two names, as many as they need once a file is made narrower


def draw(data: pd.DataFrame, order: Sequence[str] | None = None) -> Chart:
    """Left, a matrix whose colour is the cosine and whose dots are as large as the confusion; right, pair by pair.

    data: one row per ordered pair of classes: true, predicted, cosine, share (of the true class, a fraction). Pairs of
    a class with itself are left out. ρ is Spearman's; pairs share classes, so it comes without an interval.
    order: class names in the order wanted.
    """
    frame = tidy(data, "similarity", names=("true", "predicted"), numbers=("cosine", "share"))
    names = ordered(list(dict.fromkeys([*frame["true"], *frame["predicted"]])), order)
    pairs = frame[frame["true"] != frame["predicted"]]
    if pairs.empty:
        raise UserError("similarity compares pairs of different classes; the table pairs each class only with itself.")
    rho = correlation(pairs["cosine"].to_numpy(), pairs["share"].to_numpy())[0]
    title = "ρ is not defined" if np.isnan(rho) else f"ρ = {fixed(rho, 2)} over {len(pairs):,} ordered pairs"
    numbers = {"cosine": (fixed(value, 2) for value in pairs["cosine"]), "share": map(percent, pairs["share"])}
    rows, tips = with_tooltips(pairs, {"true": pairs["true"], "predicted": pairs["predicted"], **numbers})
    return alt.hconcat(_matrix(rows, names, tips), _scatter(rows, tips).properties(title=title), spacing=24)


def _matrix(pairs: pd.DataFrame, names: list[str], tips: Look) -> Chart:
    side = min(_CELL * len(names), _SIDE)
    look: Look = {"labels": len(names) <= MOST_LABELS, "ticks": False, "domain": False, "labelOverlap": False}
    below, left = alt.Axis(labelAngle=label_angle(names), **look), alt.Axis(**look)
    base = alt.Chart(table(pairs), width=side, height=side).encode(
        x=alt.X("predicted:N", sort=names, scale=alt.Scale(domain=names), axis=below, title="predicted"),
        y=alt.Y("true:N", sort=names, scale=alt.Scale(domain=names), axis=left, title="true class"),
        **tips,
    )
    colour = alt.Color(
        "cosine:Q",
        scale=alt.Scale(scheme=SEQUENTIAL),
        legend=alt.Legend(title="cosine", format=".1f", gradientLength=70),
    )
    size = alt.Size(
        "share:Q",
        scale=alt.Scale(range=[0, (_DOT * side / len(names)) ** 2], zero=True),
        legend=alt.Legend(title="misclassified as", format="%", tickCount=3),
    )
    dots = base.properties(data=table(pairs[pairs["share"] > _SEEN * pairs["share"].max()])).encode(size=size)
    # As encodings, since a legend omits outlines that are set on the mark.
    circles = dots.mark_point(strokeWidth=0.7 if side < _SIDE else 0.4, opacity=1, aria=True).encode(
        fill=alt.value("white"), stroke=alt.value("black")
    )
    return base.mark_rect(aria=True).encode(color=colour) + circles


def _scatter(pairs: pd.DataFrame, tips: Look) -> Chart:
    x = alt.X("cosine:Q", title="cosine of the mean logits", scale=alt.Scale(zero=False))
    y = alt.Y("share:Q", title="share misclassified as the other class", axis=alt.Axis(format="%"))
    points = (
        alt.Chart(table(pairs), width=_SCATTER, height=_SCATTER)
        .mark_point(filled=True, opacity=0.5, size=30 if len(pairs) < 500 else 6, color=PALETTE[0], aria=True)
        .encode(x=x, y=y, **tips)
    )
    top = pairs.nlargest(_NAMED_PAIRS, "share").sort_values("share", kind="stable")
    most = float(pairs["share"].max())
    places = apart(top["share"].to_numpy(), most * _LINE / _SCATTER, (0.0, most))
    named = alt.Chart(table(top.assign(pair=top["true"] + " → " + top["predicted"], share=places)))
    return points + named.mark_text(align="right", dx=-6, limit=_SCATTER).encode(x=x, y=y, text="pair:N")


def from_study(studies: Mapping[str, Tables], model: str | None = None, order: tuple[str, ...] | None = None) -> Chart:
    """A row for each model of similarity, or for one of them."""
    rows = by_model(studies, "similarity", model)
    return side_by_side({name: draw(own, order) for name, own in rows.items()}, columns=1)
