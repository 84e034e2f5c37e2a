"""Line plots of all classes: a few highlighted and labelled at their ends, the others faint, the range from the lowest
to the highest class shaded, and all classes together as one dashed line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import altair as alt
import numpy as np
import pandas as pd
from scipy import optimize

from classwise.core.errors import check_known
from classwise.core.format import percent as share
from classwise.show.figures.style import (
    DASHES,
    FAINT,
    PALETTE,
    QUIET,
    Chart,
    Look,
    class_colour,
    from_to,
    table,
    with_tooltips,
)
from classwise.stats.intervals import Array

ALL = "all"
BESIDE = 4  # points beside the first and the last x, so that intervals there are not on the axis
_WIDTH, _HEIGHT = 260, 180
_MOST_FAINT = 200  # classes in the background; with more only the range would be visible
_MOST_NAMED = 12  # classes all of which are named at their ends
_MOST_POINTS = 1500  # of classes in the background
_LETTER = 9  # points
_LEAD = 12  # points from the end of a line to its name
_RANGE = "range of the classes; from the lowest to the highest"

Domain = tuple[float, float]


def draw_lines(
    frame: pd.DataFrame,
    highlight: Sequence[str] | None,
    x: alt.X,
    y: str,
    domain: Domain,
    percent: bool = True,
    overall: pd.DataFrame | None = None,
    behind: Sequence[Chart] = (),
) -> Chart:
    """frame: columns x, class, value, and where there are intervals low, high. overall: columns x, value.

    highlight: classes to highlight; by default the two lowest and the two highest where the lines end.
    behind: layers to draw between the shaded range and the lines.
    """
    chosen = _chosen(frame, highlight)
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    axis = alt.Axis(format="%" if percent else ".6~g", grid=True, tickCount=5)
    up = alt.Y("value:Q", title=y, scale=scale, axis=axis)
    write = share if percent else "{:.4g}".format
    frame, tips, along = _described(frame, str(x["title"]), y, write)
    layers = [_span(frame, x, up), *behind]
    layers += [*_behind(frame, chosen, x, up, tips, along), *_singled(frame, chosen, x, up, tips, along)]
    if overall is not None:
        whole, own, whole_line = _described(overall.assign(**{"class": ALL}), str(x["title"]), y, write)
        base = alt.Chart(table(whole.drop(columns="class"))).encode(x=x, y=up)
        layers.append(base.mark_line(style="ink", strokeWidth=2, strokeDash=[4, 2], aria=True).encode(**whole_line))
        layers.append(base.mark_point(style="ink", size=14, filled=True, opacity=1, aria=True).encode(**own))
    named = frame if frame["class"].nunique() <= _MOST_NAMED else frame[frame["class"].isin(chosen)]
    ends = _ends(named, overall, chosen, domain)
    layers += _names(ends, x, up)
    return alt.layer(*layers, width=_WIDTH, height=_HEIGHT)


def _described(frame: pd.DataFrame, x: str, y: str, write: Callable[[float], str]) -> tuple[pd.DataFrame, Look, Look]:
    """The rows with the tooltips of points and of lines, which say where they begin and end, and their encodings."""
    classes = frame["class"].astype(str)
    ends = from_to(frame, ("class",), {"x": "{:.6g}".format, "value": write})
    points: dict[str, Iterable[str]] = {"class": classes}
    points |= {x: map("{:.6g}".format, frame["x"]), y: map(write, frame["value"])}
    frame, tips = with_tooltips(frame, points)
    frame, along = with_tooltips(frame, {"class": classes, x: ends["x"], y: ends["value"]}, column="tip_line")
    return frame, tips, along


def _chosen(frame: pd.DataFrame, highlight: Sequence[str] | None) -> dict[str, int]:
    """The highlighted classes, each with its number, which gives it the same colour and dash in every figure."""
    names = frame["class"].unique().tolist()
    if highlight is None:
        last = frame.dropna(subset=["value"]).groupby("class", sort=False)["value"].last().sort_values(kind="stable")
        highlight = list(dict.fromkeys((*last.index[:2], *last.index[-2:])))
    check_known("class", names, *highlight)
    return {name: names.index(name) for name in highlight}


def _span(frame: pd.DataFrame, x: alt.X, up: alt.Y) -> Chart:
    low = alt.Y("min:Q", scale=up["scale"], title=up["title"])
    span = frame.groupby("x")["value"].agg(["min", "max"]).reset_index()
    area = alt.Chart(table(span)).mark_area(color=FAINT, opacity=0.18, aria=True, description=_RANGE, tooltip=_RANGE)
    return area.encode(x=x, y=low, y2="max:Q")


def _behind(frame: pd.DataFrame, chosen: dict[str, int], x: alt.X, up: alt.Y, tips: Look, along: Look) -> list[Chart]:
    others = frame[~frame["class"].isin(chosen)]
    if not 0 < others["class"].nunique() <= _MOST_FAINT:
        return []
    base = alt.Chart(table(others)).encode(x=x, y=up)
    lines = base.mark_line(color=FAINT, strokeWidth=0.8, opacity=0.8, aria=True).encode(detail="class:N", **along)
    points = base.mark_point(color=FAINT, size=9, filled=True, opacity=1, aria=True).encode(**tips)
    return [lines, points] if len(others) <= _MOST_POINTS else [lines]


def _singled(frame: pd.DataFrame, chosen: dict[str, int], x: alt.X, up: alt.Y, tips: Look, along: Look) -> list[Chart]:
    """Lines, points and intervals of the highlighted classes; their numbers choose colours, so that panels agree."""
    own = frame[frame["class"].isin(chosen)]
    numbers = list(range(len(PALETTE) * len(DASHES)))
    dashes = [DASHES[(n + n // len(PALETTE)) % len(DASHES)] for n in numbers]  # with its colour each pair once
    colour = alt.Color(
        "number:O", scale=alt.Scale(domain=numbers, range=[class_colour(n) for n in numbers]), legend=None
    )
    dash = alt.StrokeDash("number:O", scale=alt.Scale(domain=numbers, range=dashes), legend=None)
    base = alt.Chart(table(own.assign(number=own["class"].map(chosen) % len(numbers)))).encode(x=x, color=colour)
    layers = [
        base.mark_line(strokeWidth=1.8, aria=True).encode(y=up, strokeDash=dash, detail="class:N", **along),
        base.mark_point(size=14, filled=True, opacity=1, aria=True).encode(y=up, **tips),
    ]
    if "low" in frame:
        low = alt.Y("low:Q", scale=up["scale"], title=up["title"])
        layers.append(base.mark_rule(opacity=0.6, aria=True).encode(y=low, y2="high:Q", **tips))
    return layers


def _ends(frame: pd.DataFrame, overall: pd.DataFrame | None, chosen: dict[str, int], domain: Domain) -> pd.DataFrame:
    """The position of each label: beside the end of its line, without overlaps."""
    last = frame.dropna(subset=["value"]).groupby("class", sort=False).last().reset_index()
    ends = last[["class", "x", "value"]].assign(
        colour=[class_colour(chosen[name]) if name in chosen else QUIET for name in last["class"]]
    )
    if overall is not None:
        own = overall.iloc[[-1]][["x", "value"]].assign(**{"class": ALL, "colour": None})
        ends = pd.concat([ends, own], ignore_index=True)
    gap = (domain[1] - domain[0]) * (_LETTER + 1) / _HEIGHT
    ends = ends.sort_values("value", kind="stable")
    return ends.assign(end=ends["value"], value=apart(ends["value"].to_numpy(), gap, domain), x=frame["x"].max())


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
    """The names at the ends of the lines, in ink, each led to its line by a rule of the class's colour."""
    text: Look = {"align": "left", "baseline": "middle", "dx": _LEAD + 3, "fontSize": _LETTER}
    quiet = ends["colour"] == QUIET
    others = alt.Chart(table(ends[quiet])).mark_text(color=QUIET, **text).encode(x=x, y=up, text="class:N")
    named = alt.Chart(table(ends[~quiet])).mark_text(style="ink", **text).encode(x=x, y=up, text="class:N")
    look: Look = {"strokeWidth": 1, "xOffset": 3, "x2Offset": _LEAD, "aria": False}
    led = (
        alt.Chart(table(ends.fillna({"colour": QUIET})))
        .mark_rule(**look)
        .encode(
            x=x,
            x2="x:Q",
            y=alt.Y("end:Q", scale=up["scale"], title=up["title"]),
            y2="value:Q",
            stroke=alt.Stroke("colour:N", scale=None),
        )
    )
    return [led, others, named]
