"""The trade of a repair: average against worst class of every change tried, the one taken marked.

Each change is a point on the calibration images, with both confidence intervals; the line joins those that no other
exceeds in both. Diamonds are the model before and after on the judging images, which were not fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import percent
from classwise.results.repair_result import AFTER, BEFORE, RepairResult
from classwise.show.figures.style import FAINT, PALETTE, Chart, Look, table, with_tooltips

_WIDTH, _HEIGHT = 300, 240
_KINDS = {
    "other": "other change tried",
    "front": "on the front",
    "taken": "taken",
    BEFORE: "judged before",
    AFTER: "judged after",
}
_COLOURS = (FAINT, PALETTE[0], PALETTE[2], PALETTE[1], PALETTE[4])
_SHAPES = ("circle", "circle", "triangle-up", "diamond", "diamond")


def draw(result: RepairResult) -> Chart:
    """All changes of one repair."""
    frame = _points(result)
    tips = {
        "change": frame["what"],
        "kind": frame["kind"],
        "average": map(percent, frame["average"]),
        "worst class": frame["worst_class"],
        "worst": map(percent, frame["worst"]),
    }
    rows, shown = with_tooltips(frame, tips)
    kinds = list(_KINDS.values())
    legend = alt.Legend(orient="top", title=None, columns=3, symbolOpacity=1)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=list(_COLOURS)), legend=legend)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=list(_SHAPES)), legend=legend)
    size = alt.condition(alt.datum["kind"] == _KINDS["taken"], alt.value(160), alt.value(60))
    x, y = _axis(alt.X, frame, "average"), _axis(alt.Y, frame, "worst")
    base = alt.Chart(table(rows)).encode(color=colour, **shown)
    bars = base.mark_rule(strokeWidth=1.1, opacity=0.55, aria=True)
    return alt.layer(
        _path(frame[frame["front"]].sort_values("average"), x["value"], y["value"]),
        bars.encode(x=x["low"], x2="average_high:Q", y=y["value"]),
        bars.encode(y=y["low"], y2="worst_high:Q", x=x["value"]),
        base.mark_point(filled=True, opacity=1, aria=True).encode(x=x["value"], y=y["value"], shape=shape, size=size),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _path(front: pd.DataFrame, x: alt.X, y: alt.Y) -> Chart:
    """The line through the changes on the front."""
    size = len(front)
    texts = {"front": ["worst class against average"] * size, "changes": [str(size)] * size}
    rows, tips = with_tooltips(front, texts)
    path = alt.Chart(table(rows)).mark_line(color=FAINT, strokeWidth=1, aria=True)
    return path.encode(x=x, y=y, order=alt.Order("average:Q"), **tips)


def from_repairs(repairs: Mapping[str, RepairResult]) -> Chart:
    """One repair."""
    if len(repairs) != 1:
        raise UserError(f"the front is that of one repair; got {', '.join(repairs)}.")
    return draw(next(iter(repairs.values())))


def _points(result: RepairResult) -> pd.DataFrame:
    """Every change tried, the one taken last so that none of the same accuracies hides it, then the model before and
    after as it was judged."""
    rounds = result.rounds.assign(what=[f"change {number}" for number in result.rounds["number"]])
    kinds = [
        "taken" if taken else "front" if best else "other"
        for taken, best in zip(rounds["chosen"], rounds["front"], strict=True)
    ]
    judged = pd.DataFrame([{**numbers, "what": name, "front": False} for name, numbers in result.judged().items()])
    columns = [
        "what",
        "front",
        "worst_class",
        *(f"{key}{end}" for key in ("average", "worst") for end in ("", "_low", "_high")),
    ]
    frame = pd.concat([rounds[columns], judged[columns]], ignore_index=True)
    frame = frame.assign(kind=[_KINDS[kind] for kind in (*kinds, BEFORE, AFTER)])
    place = {kind: number for number, kind in enumerate(_KINDS.values())}
    return frame.sort_values("kind", key=lambda column: column.map(place), kind="stable", ignore_index=True)


def _axis(channel: type[alt.X] | type[alt.Y], frame: pd.DataFrame, key: str) -> dict[str, Any]:
    """The channel for the values and for the low ends of the intervals, with room for all intervals shown."""
    low, high = float(frame[f"{key}_low"].min()), float(frame[f"{key}_high"].max())
    scale = alt.Scale(domain=[max(0.0, low - 0.01), min(1.0, high + 0.01)], nice=False, zero=False)
    title = "mean robust accuracy of the classes" if key == "average" else "robust accuracy of the worst class"
    rest: Look = {"title": title, "scale": scale, "axis": alt.Axis(format="%", grid=True, tickCount=5)}
    return {"value": channel(f"{key}:Q", **rest), "low": channel(f"{key}_low:Q", **rest)}
