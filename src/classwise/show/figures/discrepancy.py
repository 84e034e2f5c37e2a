"""How far each class is above or below the average of the classes, for several models and attacks.

Benz et al. ("Robustness may be at odds with fairness", 2020), Figures 1 and 2: a_c − ā, with ā the mean of the class
accuracies, is wider after adversarial training and widest for its robust accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import fixed, interval, percent
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show.figures.frames import tidy
from classwise.show.figures.style import Chart, table, with_tooltips

_STEP, _WIDTH = 13, 130
_BELOW, _ABOVE = "#D55E00", "#56B4E9"  # Okabe and Ito's vermilion and sky blue, dark and light in grey
_SIGNED = "datum.value > 0 ? '+' + datum.label : datum.label"


def draw(data: pd.DataFrame, most: int = 15) -> Chart:
    """Bars from the average, in percentage points, a column per model and a row per attack; above each panel the
    average. Classes from the lowest to the highest, by their mean over the panels.

    data: one row per class, model and attack: class, accuracy (a fraction), model, attack, and low and high if known.
    Without the column model or attack there is one of them. The intervals are those of a_c, shifted by ā, whose own
    uncertainty is comparatively small.
    most: with more than twice as many classes, so many from each end are drawn; the average is still over all.
    """
    frame = _with_panels(data)
    accuracies = frame.groupby(["model", "attack"], sort=False)["accuracy"]
    average = accuracies.transform("mean")
    for column in [name for name in ("accuracy", "low", "high") if name in frame]:
        frame[f"{column}_off"] = 100 * (frame[column] - average)
    means = frame.groupby("class", sort=False)["accuracy_off"].mean().sort_values(kind="stable", na_position="last")
    every = list(means.index)
    order = every if len(every) <= 2 * most else [*every[:most], *every[-most:]]
    models, attacks = (list(frame[column].unique()) for column in ("model", "attack"))
    x = alt.Scale(domain=_reach(frame), nice=False)
    panels = [
        _panel(_of(frame, model, attack), order, x, model == models[0], attack == attacks[-1])
        for attack in attacks
        for model in models
    ]
    grid = alt.concat(*panels, columns=len(models), spacing=14)
    if len(order) == len(every):
        return grid
    return grid.properties(title=f"The {most} lowest and the {most} highest of {len(every)} classes")


def _with_panels(data: pd.DataFrame) -> pd.DataFrame:
    panels = [column for column in ("model", "attack") if column in data]
    frame = tidy(data, "discrepancy", names=("class", *panels), numbers=("accuracy",), optional=("low", "high"))
    frame = frame.assign(**{column: "" for column in ("model", "attack") if column not in panels})
    if (twice := frame.duplicated(["class", "model", "attack"])).any():
        raise UserError(
            f"the table of discrepancy has the class {frame['class'][twice].iloc[0]!r} twice for the same model and "
            "attack; distinguish them in the columns model and attack."
        )
    return frame


def _of(frame: pd.DataFrame, model: str, attack: str) -> pd.DataFrame:
    return frame[(frame["model"] == model) & (frame["attack"] == attack)]


def _reach(frame: pd.DataFrame) -> list[float]:
    drawn = frame[[column for column in ("accuracy_off", "low_off", "high_off") if column in frame]]
    return [min(float(drawn.min().min()), 0.0) - 1, max(float(drawn.max().max()), 0.0) + 1]


def _panel(rows: pd.DataFrame, order: list[str], scale: alt.Scale, first: bool, last: bool) -> Chart:
    names = alt.Axis(labels=first, ticks=False, domain=False, labelOverlap=False)
    y = alt.Y("class:N", sort=order, scale=alt.Scale(domain=order), title=None, axis=names)
    axis = alt.Axis(tickCount=5, grid=True, labels=last, labelExpr=_SIGNED)
    where: dict[str, Any] = {
        "title": "difference from the average (points)" if last else None,
        "axis": axis,
        "scale": scale,
    }
    kept = rows[rows["class"].isin(order)]
    shown, tips = with_tooltips(kept, _texts(kept))
    base = alt.Chart(table(shown), width=_WIDTH, height=alt.Step(_STEP)).encode(**tips)
    sign = alt.condition("datum.accuracy_off < 0", alt.value(_BELOW), alt.value(_ABOVE))
    chart: Chart = base.mark_bar(aria=True).encode(x=alt.X("accuracy_off:Q", **where), y=y, color=sign)
    if "low_off" in rows:
        chart += base.mark_rule(style="ink", aria=True).encode(x=alt.X("low_off:Q", **where), x2="high_off:Q", y=y)
    return chart.properties(title=_title(rows))


def _texts(rows: pd.DataFrame) -> dict[str, list[str]]:
    """The texts of tooltips."""
    texts = {"class": rows["class"].tolist(), "accuracy": [percent(value) for value in rows["accuracy"]]}
    if "low" in rows:
        texts["interval"] = [interval(*pair) for pair in zip(rows["low"], rows["high"], strict=True)]
    return {**texts, "points from the average": [fixed(off, 1, signed=True) for off in rows["accuracy_off"]]}


def _title(rows: pd.DataFrame) -> alt.Title:
    if rows.empty:
        return alt.Title("not measured", fontSize=10, frame="group")
    first, numbers = rows.iloc[0], f"average {percent(rows['accuracy'].mean())}"
    name = ", ".join(part for part in (first["model"], first["attack"]) if part)
    return alt.Title([name, numbers] if name else numbers, fontSize=10, frame="group")


def rows_of(runs: Mapping[str, Mapping[str, Records]]) -> pd.DataFrame:
    """The table to draw, of the records of each model under each attack, both by name."""
    return pd.concat(
        [
            accuracy.compute(rows).to_frame().rename(columns={"value": "accuracy"}).assign(model=model, attack=attack)
            for model, own in runs.items()
            for attack, rows in own.items()
        ],
        ignore_index=True,
    )


def from_runs(audits: Mapping[str, Audit], attack: str | None = None, most: int = 10) -> Chart:
    """A column for each audit; clean accuracy above, under the attack below."""
    runs = {
        name: {CLEAN: audit.rows(CLEAN), attack or audit.headline: audit.rows(attack)} for name, audit in audits.items()
    }
    return draw(rows_of(runs), most)
