"""Clean accuracy against robust accuracy of each class, with the gap from worst to best class marked.

Tian et al. (2020), Figure 7: the classes of a standard model lie close together, those of an adversarially trained one
far apart. The paper pairs the clean accuracy of a standard model with the robustness of another; without `standard`
both are the same model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt
import pandas as pd

from classwise.core.errors import UserError, check_known
from classwise.core.format import distance, percent
from classwise.core.per_class import PerClass
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, overall
from classwise.results.audit_result import Audit
from classwise.show.figures.forest import EDGE, MOST, chosen_rows, class_rows
from classwise.show.figures.style import FAINT, SHAPES, Chart, run_legend, run_scale, side_by_side, table, with_tooltips

_KINDS = ("clean accuracy", "robust accuracy")
_ALL = "all images"
_SPANS = ("clean gap", "robust gap")  # the lines from worst to best class
_SIDES: dict[Literal["left", "right"], int] = {"left": 4, "right": -4}  # points between text and the edge
_WIDTH = 220


def draw(clean: Records, robust: Records, most: int = MOST, order: Sequence[str] | None = None) -> Chart:
    """clean: records of clean images; robust: records under attack, of this or another model.

    order: of the classes, by default the least robust on top; see forest for `most`.
    """
    if clean.class_names != robust.class_names:
        raise UserError("the gap is between two sets of records of the same classes; these have different ones.")
    pair = dict(zip(_KINDS, (clean, robust), strict=True))
    found = {kind: accuracy.compute(rows) for kind, rows in pair.items()}
    lines = [*chosen_rows(found[_KINDS[1]].to_frame(), most, order), _ALL]
    y = class_rows([*lines, *_SPANS])
    x = alt.X(
        "value:Q", title="accuracy", scale=alt.Scale(domain=[0, 1], padding=EDGE), axis=alt.Axis(format="%", grid=True)
    )
    frame = _table(pair, found)
    shown = frame[frame["class"].isin(lines)]
    layers = [_links(shown, x, y), _points(shown, x, y), *_spans(found, x, y)]
    return alt.layer(*layers, width=_WIDTH, height=alt.Step(13))


def _table(pair: Mapping[str, Records], found: Mapping[str, PerClass]) -> pd.DataFrame:
    """Rows kind, class, n, value: the classes', and all images'."""
    classes = [own.to_frame()[["class", "n", "value"]].assign(kind=kind) for kind, own in found.items()]
    total = [
        pd.DataFrame({"class": [_ALL], "n": [len(rows)], "value": [overall.compute(rows).value], "kind": [kind]})
        for kind, rows in pair.items()
    ]
    return pd.concat([*classes, *total], ignore_index=True)


def _links(shown: pd.DataFrame, x: alt.X, y: alt.Y) -> Chart:
    ends = shown.groupby("class", sort=False)["value"].agg(["min", "max"]).reset_index()
    low = alt.X("min:Q", scale=x["scale"], title="accuracy")
    lost = map(distance, ends["max"] - ends["min"])
    rows, tips = with_tooltips(ends, {"class": ends["class"].astype(str), "points apart": lost})
    return (
        alt.Chart(table(rows)).mark_rule(color=FAINT, strokeWidth=1.5, aria=True).encode(x=low, x2="max:Q", y=y, **tips)
    )


def _points(shown: pd.DataFrame, x: alt.X, y: alt.Y) -> Chart:
    numbers = {"value": map(percent, shown["value"]), "n": map("{:,}".format, shown["n"])}
    rows, tips = with_tooltips(shown, {"class": shown["class"].astype(str), "kind": shown["kind"], **numbers})
    return (
        alt.Chart(table(rows))
        .mark_point(filled=True, size=40, opacity=1, aria=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", scale=run_scale(_KINDS), legend=run_legend(_KINDS)),
            shape=alt.Shape("kind:N", scale=run_scale(_KINDS, SHAPES), legend=run_legend(_KINDS)),
            **tips,
        )
    )


def _spans(found: Mapping[str, PerClass], x: alt.X, y: alt.Y) -> list[Chart]:
    """From the worst to the best class, with the distance in percentage points and their names."""
    frame = pd.DataFrame([_span(kind, own, line) for (kind, own), line in zip(found.items(), _SPANS, strict=True)])
    low = alt.X("low:Q", scale=x["scale"], title="accuracy")
    rows, tips = with_tooltips(frame, {"gap": frame["kind"], "points": frame["text"]})
    bars = alt.Chart(table(rows)).mark_bar(height=10, opacity=0.35, aria=True)
    colour = alt.Color("kind:N", scale=run_scale(_KINDS), legend=None)
    layers: list[Chart] = [bars.encode(x=low, x2="high:Q", y=y, color=colour, **tips)]
    at = alt.X("at:Q", scale=x["scale"], title="accuracy")
    for side, dx in _SIDES.items():
        words = alt.Chart(table(frame[frame["side"] == side])).mark_text(fontSize=8, align=side, dx=dx)
        layers.append(words.encode(x=at, y=y, text="text:N"))
    return layers


def _span(kind: str, own: PerClass, line: str) -> dict[str, str | float]:
    """A span with its text, aligned left or right, on whichever side there is room."""
    worst, best = own.worst, own.best
    low, high = float(own.values[worst]), float(own.values[best])
    between = "" if low == high else f" ({own.class_names[worst]} to {own.class_names[best]})"
    side, at = ("left", low) if low < 0.5 else ("right", high)
    text = f"{distance(high - low)}{between}"
    return {"kind": kind, "class": line, "low": low, "high": high, "side": side, "at": at, "text": text}


def from_runs(
    audits: Mapping[str, Audit],
    attack: str | None = None,
    standard: str | None = None,
    most: int = MOST,
    order: tuple[str, ...] | None = None,
) -> Chart:
    """A panel for each audit.

    standard: the run whose clean accuracy is the standard one of all panels; it has no panel of its own.
    """
    check_known("run", audits, standard)
    shown = {name: audit for name, audit in audits.items() if name != standard} or audits
    charts = {}
    for name, audit in shown.items():
        clean = audits[standard or name].rows(CLEAN)
        charts[name] = draw(clean, audit.rows(attack), most, order)
    return side_by_side(charts)
