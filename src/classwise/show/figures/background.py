"""Confusion of classes that share a background: with clean and with adversarial images, side by side.

Tian et al. (KDD 2021), Figure 5: given one colour of background to each group of digits, the errors under attack follow
the backgrounds, while those on clean images do not.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import listed, percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import (
    MOST_LABELS,
    SEQUENTIAL,
    Chart,
    Look,
    label_angle,
    side_by_side,
    table,
    with_tooltips,
)

_MOST_NUMBERS = 12
_CELL, _SIDE = 24, 400
_FRAME = "#D55E00"  # Okabe and Ito's vermilion, which contrasts with the blues


def draw(data: pd.DataFrame, background: Mapping[str, str]) -> Chart:
    """A matrix per kind of image, classes of one background together and framed, without the diagonal.

    data: one row per kind, true and predicted class: kind (such as clean and adversarial), true, predicted, images
    (how many; pairs that never happen may be left out). Rows with true = predicted give the correct ones.
    background: the background of every class.

    Above each matrix: how many of the errors stay on their background, and how many would if a wrong image were equally
    likely to become any other class, Σ_i e_i (g_i − 1)/(C − 1) / Σ_i e_i with e_i the errors of class i and g_i the
    number of classes on its background.
    """
    frame = tidy(data, "background", names=("kind", "true", "predicted"), numbers=("images",))
    classes = list(dict.fromkeys([*frame["true"], *frame["predicted"]]))
    if bare := [name for name in classes if name not in background]:
        raise UserError(f"background says the background of every class; {', '.join(map(repr, bare))} missing.")
    groups = list(dict.fromkeys(background[name] for name in classes))
    order = sorted(classes, key=lambda name: groups.index(background[name]))
    frame["share"] = frame["images"] / frame.groupby(["kind", "true"])["images"].transform("sum")
    errors = frame[frame["true"] != frame["predicted"]]
    largest = float(errors["share"].max()) if len(errors) else 1.0
    kinds = list(dict.fromkeys(frame["kind"]))
    charts = []
    for kind in kinds:
        own = errors[errors["kind"] == kind]
        matrix = _matrix(own, order, largest, named=kind == kinds[0]) + _frames(order, background, kind == kinds[-1])
        title = alt.Title([kind, *_describe(own, order, background)], frame="group")
        charts.append(matrix.properties(title=title))
    return alt.hconcat(*charts, spacing=20)


def same_background(errors: pd.DataFrame, background: Mapping[str, str]) -> tuple[float, float]:
    """The share of errors that stay on their background, and the share expected of evenly spread errors."""
    images = errors["images"].to_numpy(dtype=np.float64)
    if not images.sum():
        return float("nan"), float("nan")
    here, there = errors["true"].map(background), errors["predicted"].map(background)
    sizes = pd.Series(list(background.values())).value_counts()
    evenly = (here.map(sizes) - 1) / (len(background) - 1)
    return float(np.average(here == there, weights=images)), float(np.average(evenly, weights=images))


def _describe(errors: pd.DataFrame, order: list[str], background: Mapping[str, str]) -> list[str]:
    stay, evenly = same_background(errors, {name: background[name] for name in order})
    if np.isnan(stay):
        return ["no errors"]
    return [f"errors in frames: {percent(stay, 0)}", f"by chance: {percent(evenly, 0)}"]


def _matrix(errors: pd.DataFrame, order: list[str], largest: float, named: bool) -> Chart:
    side, scale, few = min(_CELL * len(order), _SIDE), alt.Scale(domain=order), len(order) <= MOST_LABELS
    look: Look = {"ticks": False, "domain": False, "labelOverlap": False}
    bottom, left = alt.Axis(labels=few, labelAngle=label_angle(order), **look), alt.Axis(labels=few and named, **look)
    across = alt.X("predicted:N", scale=scale, sort=order, axis=bottom, title="predicted")
    down = alt.Y("true:N", scale=scale, sort=order, axis=left, title="true class" if named else None)
    numbers = {"images": map("{:,.0f}".format, errors["images"]), "share": map(percent, errors["share"])}
    rows, tips = with_tooltips(errors, {"true": errors["true"], "predicted": errors["predicted"], **numbers})
    base = alt.Chart(table(rows), width=side, height=side).encode(x=across, y=down, **tips)
    colour = alt.Color(
        "share:Q",
        scale=alt.Scale(scheme=SEQUENTIAL, domain=[0, largest]),
        legend=alt.Legend(format="%", title="share", gradientLength=80),
    )
    cells: Chart = base.mark_rect(aria=True).encode(color=colour)
    if len(order) > _MOST_NUMBERS:
        return cells
    tone = alt.condition(f"datum.share > {0.6 * largest}", alt.value("white"), alt.value("black"))
    some = base.transform_filter("datum.share >= 0.005").transform_calculate(percent="100 * datum.share")
    return cells + some.mark_text(fontSize=8).encode(text=alt.Text("percent:Q", format=".0f"), color=tone)


def _frames(order: list[str], background: Mapping[str, str], named: bool) -> Chart:
    """A box around the classes of each background, and its name at the right, beside the first of them."""
    members = pd.DataFrame({"class": order, "group": [background[name] for name in order]})
    groups = members.groupby("group", sort=False)["class"]
    ends = groups.agg(["first", "last"]).reset_index()
    scale = alt.Scale(domain=order)
    classes = [listed(own.tolist()) for _, own in groups]
    rows, tips = with_tooltips(ends, {"background": ends["group"], "classes": classes})
    boxes = alt.Chart(table(rows)).encode(
        x=alt.X("first:N", scale=scale, sort=order, bandPosition=0),
        x2=alt.X2("last:N", bandPosition=1),
        y=alt.Y("first:N", scale=scale, sort=order, bandPosition=0),
        y2=alt.Y2("last:N", bandPosition=1),
        **tips,
    )
    framed = boxes.mark_rect(filled=False, stroke=_FRAME, strokeWidth=1.5, aria=True)  # the cells inside stay in reach
    if not named or len(ends) > MOST_LABELS:
        return framed
    names = alt.Chart(table(ends)).mark_text(align="left", dx=5)
    return framed + names.encode(
        x=alt.value("width"), y=alt.Y("first:N", scale=scale, sort=order), text=alt.Text("group:N")
    )


def from_study(studies: Mapping[str, Tables], model: str | None = None) -> Chart:
    """A row for each model of background whose classes have a background each, or for one of them."""
    charts = {}
    for name, own in by_model(studies, "background", model).items():
        charts[name] = draw(own, dict(zip(own["true"], own["background"], strict=True)))
    return side_by_side(charts, columns=1)
