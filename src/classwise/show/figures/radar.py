"""Radar of class accuracies: a spoke for each class, a closed line for each run.

Li & Liu (WAT, AAAI 2023), Figures 4 to 6: the rounder the line, the fairer the model. A class without examples is a gap
in the line. Angles tempt to read areas; where numbers matter, use the forest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import UNKNOWN, percent
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show.figures.style import (
    DASHES,
    FAINT,
    PALETTE,
    SHAPES,
    Chart,
    Look,
    ordered,
    run_legend,
    run_scale,
    table,
    under_name,
    with_tooltips,
)

_SIDE = 260
_REACH = 1.05  # of the outermost ring, where names begin
_MOST_LEVEL = 20  # classes whose names are written level; those of more point outwards
_MOST_NAMED = 120
_RINGS = 4
_PLANE = alt.Scale(domain=[-1, 1], nice=False)
_X, _Y = alt.X("x:Q", axis=None, scale=_PLANE), alt.Y("y:Q", axis=None, scale=_PLANE)


def draw(runs: Mapping[str, Records], order: Sequence[str] | None = None) -> Chart:
    """runs: the records of one attack for each run, by name, all of the same classes.

    order: of the classes, from the top clockwise.
    """
    found = {name: accuracy.compute(rows) for name, rows in runs.items()}
    first, *others = found.values()
    if any(other.class_names != first.class_names for other in others):
        raise UserError("a radar needs runs of the same classes; draw them one by one.")
    names = ordered(first.class_names, order)
    top = max(float(np.nanmax(own.values)) for own in found.values())
    outer = max(0.2, np.ceil(top * 10 / 2) * 2 / 10)  # a whole number of fifths
    lines = {name: _polygon(name, own.to_frame(), names, outer) for name, own in found.items()}
    legend = run_legend(list(runs), offset=18)  # above the topmost name
    every = pd.concat(lines.values(), ignore_index=True)
    texts = {"run": every["run"], "class": every["class"], "accuracy": map(percent, every["value"])}
    rows, tips = with_tooltips(every, {**texts, "n": map("{:,}".format, every["n"])})
    dots = (
        alt.Chart(table(rows))
        .mark_point(filled=True, size=22, opacity=1, aria=True)
        .encode(
            x=_X,
            y=_Y,
            color=alt.Color("run:N", scale=run_scale(list(runs)), legend=legend),
            shape=alt.Shape("run:N", scale=run_scale(list(runs), SHAPES), legend=legend),
            **tips,
        )
    )
    return alt.layer(*_web(names, outer), *_lines(lines), dots, width=_SIDE, height=_SIDE)


def _lines(polygons: Mapping[str, pd.DataFrame]) -> list[Chart]:
    """Each run by itself: a common scale of dashes would dash the symbols of the legend too."""
    looks = zip(polygons.values(), itertools.cycle(PALETTE), itertools.cycle(DASHES), strict=False)
    layers = []
    for own, colour, dash in looks:
        rows, tips = with_tooltips(own, {"run": own["run"], **_ends(own)})
        line = alt.Chart(table(rows)).mark_line(strokeWidth=1.6, color=colour, strokeDash=dash, aria=True)
        layers.append(line.encode(x=_X, y=_Y, order="place:Q", **tips))
    return layers


def _ends(polygon: pd.DataFrame) -> dict[str, list[str]]:
    """The worst and the best class of a run, as texts of a tooltip, the same in all its rows."""
    ranked = polygon.dropna(subset=["value"]).sort_values("value", kind="stable")
    texts = [f"{name} {percent(value)}" for name, value in zip(ranked["class"], ranked["value"], strict=True)]
    ends = {"worst class": texts[:1], "best class": texts[-1:]}
    return {title: (own or [UNKNOWN]) * len(polygon) for title, own in ends.items()}


def _at(place: np.ndarray, radius: np.ndarray | float, size: int) -> dict[str, np.ndarray]:
    """Points at a radius on the spokes, the first at the top, clockwise."""
    angle = 2 * np.pi * place / size
    return {"x": radius * np.sin(angle), "y": radius * np.cos(angle)}


def _polygon(run: str, values: pd.DataFrame, names: Sequence[str], outer: float) -> pd.DataFrame:
    """A run's corners, the first once more at the end to close the line."""
    own = values.set_index("class").loc[[*names, names[0]]].reset_index()
    place = np.arange(len(own))
    return own.assign(run=run, place=place, **_at(place, own["value"].to_numpy() / outer, len(names)))


def _web(names: Sequence[str], outer: float) -> list[Chart]:
    """Rings with their percentages, spokes, and the classes' names."""
    size, turn = len(names), np.linspace(0, 1, 121)
    rings = [pd.DataFrame({"ring": r, "place": turn, **_at(turn, r / _RINGS, 1)}) for r in range(1, _RINGS + 1)]
    faint: Look = {"color": FAINT, "strokeWidth": 0.5, "opacity": 0.6, "aria": False}
    ring = alt.Chart(table(pd.concat(rings))).mark_line(**faint).encode(x=_X, y=_Y, detail="ring:N", order="place:Q")
    marks = pd.DataFrame({"x": 0.0, "y": [r / _RINGS for r in range(1, _RINGS + 1)]})
    percents = marks.assign(text=[percent(outer * r / _RINGS, 0) for r in range(1, _RINGS + 1)])
    scale = alt.Chart(table(percents)).mark_text(dx=3, dy=5, align="left", fontSize=7, color=FAINT)
    layers = [ring, scale.encode(x=_X, y=_Y, text="text:N")]
    if size <= _MOST_NAMED:
        place = np.arange(size)
        ends = pd.DataFrame({"class": list(names), **_at(place, 1.0, size)})
        inner = 0.0 if size <= _MOST_LEVEL else 1 / _RINGS  # many spokes would cover the centre
        ends = ends.assign(inner_x=inner * ends["x"], inner_y=inner * ends["y"])
        spokes = alt.Chart(table(ends)).mark_rule(**faint)
        layers.append(spokes.encode(x=_X, y=_Y, x2="inner_x:Q", y2="inner_y:Q"))
        layers += _names(names)
    return layers


def _names(names: Sequence[str]) -> list[Chart]:
    """Outside the rings: level where they are few, else pointing outwards; those on the left end at the ring."""
    size = len(names)
    degrees = 360 * np.arange(size) / size
    frame = pd.DataFrame({"class": list(names), **_at(np.arange(size), _REACH, size)})
    if size <= _MOST_LEVEL:
        side = np.where(np.abs(frame["x"]) < 0.01, "center", np.where(frame["x"] > 0, "left", "right"))
        turn, letters = np.zeros(size), 9
    else:
        side = np.where(degrees < 180, "left", "right")
        turn, letters = np.where(degrees < 180, degrees - 90, degrees - 270), min(9, int(3 * _SIDE / size))
    layers = []
    for align in dict.fromkeys(side):
        look: Look = {"align": align, "baseline": "middle", "fontSize": letters}
        own = alt.Chart(table(frame.assign(turn=turn)[side == align])).mark_text(**look)
        layers.append(own.encode(x=_X, y=_Y, text="class:N", angle=alt.Angle("turn:Q", scale=None)))
    return layers


def from_runs(audits: Mapping[str, Audit], attack: str | None = None, order: tuple[str, ...] | None = None) -> Chart:
    """All audits in one radar."""
    return under_name(draw({name: audit.rows(attack) for name, audit in audits.items()}, order), list(audits))
