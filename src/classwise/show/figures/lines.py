"""Line plots of all classes: a few highlighted and labelled at their ends, the others faint, the range from the lowest
to the highest class shaded, and all classes together as one dashed line."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from scipy import optimize

from classwise.core.errors import check_known
from classwise.core.format import percent as share
from classwise.show.figures.style import DASHES, FAINT, PALETTE, QUIET, Chart, Look, table, with_tooltips
from classwise.stats.intervals import Array

ALL = "all"
BESIDE = 4  # points beside the first and the last x, so that intervals there are not on the axis
_WIDTH, _HEIGHT = 260, 180
_MOST_FAINT = 200  # classes in the background; with more only the range would be visible
_MOST_NAMED = 12  # classes all of which are named at their ends
_LETTER = 9  # points

Domain = tuple[float, float]


def draw_lines(
    frame: pd.DataFrame,
    highlight: Sequence[str] | None,
    x: alt.X,
    y: str,
    domain: Domain,
    percent: bool = True,
    overall: pd.DataFrame | None = None,
) -> Chart:
    """frame: columns x, class, value, and where there are intervals low, high. overall: columns x, value.

    highlight: classes to highlight; by default the two lowest and the two highest where the lines end.
    """
    chosen = _chosen(frame, highlight)
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    axis = alt.Axis(format="%" if percent else ".6~g", grid=True, tickCount=5)
    up = alt.Y("value:Q", title=y, scale=scale, axis=axis)
    values = [share(value) if percent else f"{value:.4g}" for value in frame["value"]]
    at = map("{:.6g}".format, frame["x"])
    frame, tips = with_tooltips(frame, {"class": frame["class"].astype(str), str(x["title"]): at, y: values})
    layers = [_span(frame, x, up), *_behind(frame, chosen, x, up, tips), *_singled(frame, chosen, x, up, tips)]
    if overall is not None:
        layers.append(
            alt.Chart(table(overall)).mark_line(style="ink", strokeWidth=2, strokeDash=[4, 2]).encode(x=x, y=up)
        )
    named = frame if frame["class"].nunique() <= _MOST_NAMED else frame[frame["class"].isin(chosen)]
    ends = _ends(named, overall, chosen, domain)
    layers += _names(ends, x, up)
    return alt.layer(*layers, width=_WIDTH, height=_HEIGHT)


def _chosen(frame: pd.DataFrame, highlight: Sequence[str] | None) -> dict[str, int]:
    """The highlighted classes, each with the number of its colour and dash."""
    names = frame["class"].unique().tolist()
    if highlight is None:
        last = frame.dropna(subset=["value"]).groupby("class", sort=False)["value"].last().sort_values(kind="stable")
        highlight = list(dict.fromkeys((*last.index[:2], *last.index[-2:])))
    check_known("class", names, *highlight)
    return {name: place % len(PALETTE) for place, name in enumerate(highlight)}


def _span(frame: pd.DataFrame, x: alt.X, up: alt.Y) -> Chart:
    low = alt.Y("min:Q", scale=up["scale"], title=up["title"])
    span = frame.groupby("x")["value"].agg(["min", "max"]).reset_index()
    return alt.Chart(table(span)).mark_area(color=FAINT, opacity=0.18).encode(x=x, y=low, y2="max:Q")


def _behind(frame: pd.DataFrame, chosen: dict[str, int], x: alt.X, up: alt.Y, tips: Look) -> list[Chart]:
    others = frame[~frame["class"].isin(chosen)]
    if not 0 < others["class"].nunique() <= _MOST_FAINT:
        return []
    lines = alt.Chart(table(others)).mark_line(color=FAINT, strokeWidth=0.8, opacity=0.8)
    return [lines.encode(x=x, y=up, detail="class:N", tooltip=tips["tooltip"])]


def _singled(frame: pd.DataFrame, chosen: dict[str, int], x: alt.X, up: alt.Y, tips: Look) -> list[Chart]:
    """Lines, points and intervals of the highlighted classes; their numbers choose colours, so that panels agree."""
    own = frame[frame["class"].isin(chosen)]
    numbers = list(range(len(PALETTE)))
    colour = alt.Color("number:O", scale=alt.Scale(domain=numbers, range=list(PALETTE)), legend=None)
    dash = alt.StrokeDash("number:O", scale=alt.Scale(domain=numbers, range=list(DASHES)), legend=None)
    base = alt.Chart(table(own.assign(number=own["class"].map(chosen)))).encode(x=x, color=colour)
    layers = [
        base.mark_line(strokeWidth=1.8).encode(y=up, strokeDash=dash, detail="class:N"),
        base.mark_point(size=14, filled=True, opacity=1, aria=True).encode(y=up, **tips),
    ]
    if "low" in frame:
        low = alt.Y("low:Q", scale=up["scale"], title=up["title"])
        layers.append(base.mark_rule(opacity=0.6).encode(y=low, y2="high:Q"))
    return layers


def _ends(frame: pd.DataFrame, overall: pd.DataFrame | None, chosen: dict[str, int], domain: Domain) -> pd.DataFrame:
    """The position of each label: beside the end of its line, without overlaps."""
    last = frame.dropna(subset=["value"]).groupby("class", sort=False).last().reset_index()
    ends = last[["class", "x", "value"]].assign(
        colour=[PALETTE[chosen[name]] if name in chosen else QUIET for name in last["class"]]
    )
    if overall is not None:
        own = overall.iloc[[-1]][["x", "value"]].assign(**{"class": ALL, "colour": None})
        ends = pd.concat([ends, own], ignore_index=True)
    gap = (domain[1] - domain[0]) * (_LETTER + 1) / _HEIGHT
    ends = ends.sort_values("value", kind="stable")
    return ends.assign(value=apart(ends["value"].to_numpy(), gap, domain), x=frame["x"].max())


def apart(values: Array, gap: float, domain: Domain) -> list[float]:
    """Ascending values moved as little as possible (least squares) until neighbours are `gap` apart, inside the domain.

    Without the steps between them it is an isotonic regression, and bounds on that are a clipping of it.
    """
    if not len(values):
        return []
    steps = gap * np.arange(len(values))
    room = np.clip(optimize.isotonic_regression(values - steps).x, domain[0], max(domain[0], domain[1] - steps[-1]))
    return list(room + steps)


def _names(ends: pd.DataFrame, x: alt.X, up: alt.Y) -> list[Chart]:
    text: Look = {"align": "left", "baseline": "middle", "dx": 6, "fontSize": _LETTER}
    coloured = ends["colour"].notna()
    classes = alt.Chart(table(ends[coloured])).mark_text(**text).encode(x=x, y=up, text="class:N")
    whole = alt.Chart(table(ends[~coloured])).mark_text(style="ink", **text).encode(x=x, y=up, text="class:N")
    return [classes.encode(fill=alt.Fill("colour:N", scale=None)), whole]
