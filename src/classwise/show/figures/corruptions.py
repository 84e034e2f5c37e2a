"""Class accuracies under natural corruptions at each severity, beside those under attack.

Benz et al. ("Robustness may be at odds with fairness", 2020), Section 3.4, ask whether corruptions affect classes as
attacks do; the corruptions and their five severities are Hendrycks and Dietterich's (ICLR 2019).
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import check_known
from classwise.core.format import fixed, percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import MOST_LABELS, SEQUENTIAL, Chart, table, with_tooltips
from classwise.stats.correlation import correlation

_MOST_NUMBERS = 20
_ROW, _HEIGHT = 15, 480
_CELL = 7  # points a severity is wide


def draw(data: pd.DataFrame, attacks: pd.DataFrame | None = None) -> Chart:
    """A heat map: a row per class, a block per corruption, inside it the severities from left to right.

    data: one row per corruption, severity and class: corruption, severity, class, accuracy (a fraction).
    attacks: beside it, one row per attack and class: attack, class, accuracy; "clean" may be one. Classes go from the
    weakest to the strongest under the last of them (without it, over all corruptions), and the title gives Spearman's ρ
    between that attack and the mean over the corruptions.
    """
    frame = tidy(data, "corruptions", names=("corruption", "class"), numbers=("severity", "accuracy"))
    means = frame.groupby("class", sort=False)["accuracy"].mean()
    if attacks is None:
        return _blocks(frame, _weakest_first(means))
    beside = tidy(attacks, "corruptions (attacks)", names=("attack", "class"), numbers=("accuracy",))
    check_known("class", list(means.index), *beside["class"].unique())
    last = beside["attack"].iloc[-1]
    under = beside[beside["attack"] == last].groupby("class")["accuracy"].mean().reindex(means.index)
    rho, low, high = correlation(means.to_numpy(), under.to_numpy())
    within = "" if np.isnan(low) else f" (95% CI {fixed(low, 2)} to {fixed(high, 2)})"
    value = "ρ is not defined" if np.isnan(rho) else f"ρ = {fixed(rho, 2)}"
    order = _weakest_first(under)
    title = f"Classes under corruptions and under {last}: {value}{within}"
    return alt.hconcat(_blocks(frame, order), _attacks(beside, order), spacing=10).properties(title=title)


def _weakest_first(accuracies: pd.Series[float]) -> list[str]:
    return list(accuracies.sort_values(kind="stable", na_position="last").index)


def _rows(order: list[str], named: bool) -> alt.Y:
    labels = named and len(order) <= MOST_LABELS
    axis = alt.Axis(labels=labels, ticks=False, domain=False, labelOverlap=False)
    title = "class" if named and not labels else None
    return alt.Y("class:N", sort=order, scale=alt.Scale(domain=order), axis=axis, title=title)


def _height(order: list[str]) -> float | alt.Step:
    return _HEIGHT if len(order) > MOST_LABELS else alt.Step(_ROW)


def _colour() -> alt.Color:
    legend = alt.Legend(title="accuracy", format="%", gradientLength=80)
    return alt.Color("accuracy:Q", scale=alt.Scale(scheme=SEQUENTIAL, domain=[0, 1]), legend=legend)


def _blocks(frame: pd.DataFrame, order: list[str]) -> Chart:
    corruptions = list(dict.fromkeys(frame["corruption"]))
    x = alt.X(
        "corruption:N",
        sort=corruptions,
        title="corruption, severity from left to right",
        scale=alt.Scale(paddingInner=0.12, paddingOuter=0),
        axis=alt.Axis(labelAngle=-45, ticks=False, domain=False, labelOverlap=False),
    )
    about = {"class": frame["class"], "corruption": frame["corruption"]}
    numbers = {"severity": map("{:g}".format, frame["severity"]), "accuracy": map(percent, frame["accuracy"])}
    rows, tips = with_tooltips(frame, {**about, **numbers})
    return (
        alt.Chart(table(rows), width=alt.Step(_CELL, **{"for": "offset"}), height=_height(order))
        .mark_rect(aria=True)
        .encode(
            x=x,
            xOffset=alt.XOffset("severity:O"),
            y=_rows(order, named=True),
            color=_colour(),
            **tips,
        )
    )


def _attacks(beside: pd.DataFrame, order: list[str]) -> Chart:
    axis = alt.Axis(labelAngle=-45, ticks=False, domain=False, labelOverlap=False)
    about = {"class": beside["class"], "attack": beside["attack"]}
    rows, tips = with_tooltips(beside, {**about, "accuracy": map(percent, beside["accuracy"])})
    base = alt.Chart(table(rows), width=alt.Step(30), height=_height(order)).encode(
        x=alt.X("attack:N", sort=list(dict.fromkeys(beside["attack"])), title="attack", axis=axis),
        y=_rows(order, named=False),
        **tips,
    )
    cells = base.mark_rect(aria=True).encode(color=_colour())
    if len(order) > _MOST_NUMBERS:
        return cells
    tone = alt.condition(alt.datum.accuracy > 0.6, alt.value("white"), alt.value("black"))
    return cells + base.mark_text(fontSize=8).encode(text=alt.Text("accuracy:Q", format=".0%"), color=tone)


def from_study(studies: Mapping[str, Tables], model: str | None = None) -> Chart:
    """A row for each model of corruptions, or for one of them."""
    attacked = by_model(studies, "corruptions_attacks", model)
    charts = []
    for name, own in by_model(studies, "corruptions", model).items():
        chart = draw(own, attacked[name])
        charts.append(chart.properties(title=[name, chart.title]))
    return alt.vconcat(*charts)
