"""Robustness against 1/T of Temperature-PGD, a line for each model: in plain float32, and in the sound variant dashed.

Tian et al. (2020), Table 6, drawn. Where the two lines of a model diverge, float32 has lost the attack's gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import interval, percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import SHAPES, Chart, Look, from_to, run_legend, run_scale, table, with_tooltips

_WIDTH, _HEIGHT = 300, 200
_DASHES = ([1, 0], [5, 3])


def draw(data: pd.DataFrame) -> Chart:
    """data: one row per model, variant and value: model, variant, inv_temperature, accuracy (a fraction), and low and
    high if known. The variants are drawn in the order in which they come, the first with a full line."""
    frame = tidy(
        data,
        "temperature",
        names=("model", "variant"),
        numbers=("inv_temperature", "accuracy"),
        optional=("low", "high"),
    )
    ticks = sorted(frame["inv_temperature"].unique().tolist())
    if len(ticks) < 2 or ticks[0] <= 0:
        raise UserError(f"temperature draws at least two values of 1/T, all above 0; got {ticks}.")
    models, variants = (list(frame[column].unique()) for column in ("model", "variant"))
    if len(variants) > len(_DASHES):
        raise UserError(f"temperature draws at most {len(_DASHES)} variants; got {', '.join(variants)}.")
    axis = alt.Axis(values=ticks, format="~g", labelOverlap=True)
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    up: Look = {"title": "robust accuracy", "scale": alt.Scale(zero=False), "axis": alt.Axis(format="%", grid=True)}
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=200) if len(variants) > 1 else None
    shape = alt.Shape("model:N", scale=run_scale(models, SHAPES), legend=run_legend(models))
    rows, tips = with_tooltips(frame, _texts(frame))
    rows, along = with_tooltips(rows, _line_texts(frame), column="tip_line")
    base = alt.Chart(table(rows)).encode(
        x=alt.X("inv_temperature:Q", title="1/T", axis=axis, scale=scale),
        color=alt.Color("model:N", scale=run_scale(models), legend=run_legend(models)),
    )
    dash = alt.StrokeDash("variant:N", scale=alt.Scale(domain=variants, range=_DASHES[: len(variants)]), legend=legend)
    accuracy = alt.Y("accuracy:Q", **up)
    layers = [
        base.mark_line(strokeWidth=1.8, aria=True).encode(y=accuracy, strokeDash=dash, **along),
        base.mark_point(size=30, filled=True, opacity=1, aria=True).encode(y=accuracy, shape=shape, **tips),
    ]
    if "low" in frame:
        layers.append(base.mark_rule(opacity=0.5, aria=True).encode(y=alt.Y("low:Q", **up), y2="high:Q", **tips))
    return alt.layer(*layers, width=_WIDTH, height=_HEIGHT)


def _texts(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The tooltips of points and intervals."""
    texts = {"model": frame["model"].tolist(), "variant": frame["variant"].tolist()}
    texts["1/T"] = [f"{value:g}" for value in frame["inv_temperature"]]
    texts["robust accuracy"] = [percent(value) for value in frame["accuracy"]]
    if "low" in frame:
        texts["interval"] = [interval(*pair) for pair in zip(frame["low"], frame["high"], strict=True)]
    return texts


def _line_texts(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The tooltips of lines."""
    lines = ("model", "variant")
    ends = from_to(frame, lines, {"inv_temperature": "{:g}".format, "accuracy": percent})
    titles = {"1/T": ends["inv_temperature"], "robust accuracy": ends["accuracy"]}
    return {**{name: frame[name].tolist() for name in lines}, **titles}


def from_study(studies: Mapping[str, Tables], model: str | None = None) -> Chart:
    """All models of temperature or hypersphere in one plot, or one of them."""
    rows = by_model(studies, "temperature", model)
    return draw(pd.concat([own.assign(model=name) for name, own in rows.items()], ignore_index=True))
