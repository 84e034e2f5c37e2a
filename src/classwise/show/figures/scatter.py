"""Average against worst class: each run a point with both confidence intervals; up and to the right is better.

The intervals are those of the metrics: of the worst class, and of the mean of the classes (average).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from classwise.core.format import percent
from classwise.core.records import Records
from classwise.metrics import average, worst
from classwise.results.audit_result import Audit
from classwise.show.figures.style import SHAPES, Chart, Look, run_legend, run_scale, table, under_name, with_tooltips

_WIDTH, _HEIGHT = 260, 220


def draw(runs: Mapping[str, Records], confidence: float = 0.95) -> Chart:
    """runs: the records of one attack for each run, by name."""
    frame = pd.DataFrame([_point(name, rows, confidence) for name, rows in runs.items()])
    x, y = _axis(alt.X, frame, "average"), _axis(alt.Y, frame, "worst")
    legend = run_legend(list(runs))
    shares = {key: map(percent, frame[key]) for key in ("average", "worst")}
    rows, tips = with_tooltips(frame, {"run": frame["run"], **shares, "worst class": frame["class"]})
    base = alt.Chart(table(rows)).encode(
        color=alt.Color("run:N", scale=run_scale(list(runs)), legend=legend),
        **tips,
    )
    bars = base.mark_rule(strokeWidth=1.2, opacity=0.7, aria=True)
    across = bars.encode(x=x["low"], x2="average_high:Q", y=y["value"])
    up = bars.encode(y=y["low"], y2="worst_high:Q", x=x["value"])
    shape = alt.Shape("run:N", scale=run_scale(list(runs), SHAPES), legend=legend)
    points = base.mark_point(filled=True, size=70, opacity=1, aria=True).encode(x=x["value"], y=y["value"], shape=shape)
    return alt.layer(across, up, points, width=_WIDTH, height=_HEIGHT)


def _point(name: str, rows: Records, confidence: float) -> dict[str, str | float]:
    mean, lowest = average.estimate(rows, confidence), worst.compute(rows, confidence=confidence)
    point: dict[str, str | float] = {"run": name, "class": lowest.label}
    point |= {"average": mean.value, "average_low": mean.low, "average_high": mean.high}
    return point | {"worst": lowest.value, "worst_low": lowest.low, "worst_high": lowest.high}


def _axis(channel: type[alt.X] | type[alt.Y], frame: pd.DataFrame, key: str) -> dict[str, Any]:
    """The channel for the values and for the low ends of the intervals, both with room for all of these."""
    low, high = float(frame[f"{key}_low"].min()), float(frame[f"{key}_high"].max())
    room = max(0.08 * (high - low), 0.02)
    scale = alt.Scale(domain=[max(0.0, low - room), min(1.0, high + room)], nice=False, zero=False)
    title = "mean accuracy of the classes" if key == "average" else "accuracy of the worst class"
    rest: Look = {"title": title, "scale": scale, "axis": alt.Axis(format="%", grid=True, tickCount=5)}
    return {"value": channel(f"{key}:Q", **rest), "low": channel(f"{key}_low:Q", **rest)}


def from_runs(audits: Mapping[str, Audit], attack: str | None = None) -> Chart:
    """All audits in one plot; the confidence is the first one's."""
    confidence = next(iter(audits.values())).confidence
    return under_name(draw({name: audit.rows(attack) for name, audit in audits.items()}, confidence), list(audits))
