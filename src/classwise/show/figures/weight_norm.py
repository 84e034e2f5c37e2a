"""Robust accuracy of each class beside the norm of its row of the classifier's weights, and their correlation.

Tian et al. ("Intriguing class-wise properties of adversarial training", 2020), Figure 4: after adversarial training
robustness grows nearly monotonically with ‖w_c‖₂. The paper scales both to [0, 1]; here both keep their units.

"Monotonically" is tested by Spearman's ρ, with its confidence interval (`classwise.stats.correlation`).
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.format import fixed, interval, level, percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import MOST_LABELS, Chart, table, with_tooltips
from classwise.stats.correlation import correlation
from classwise.stats.intervals import check_confidence

_STEP, _HEIGHT, _WIDTH = 14, 480, 150
_COLUMNS = 2  # models side by side
_LEFT, _RIGHT = "#0072B2", "#D55E00"  # Okabe and Ito's blue and vermilion


def draw(data: pd.DataFrame, confidence: float = 0.95, measure: str = "robust accuracy") -> Chart:
    """Two columns of dots, the classes from the most to the least robust; ρ with its interval in the title.

    data: one row per class: class, accuracy (a fraction), norm, and low and high (of the accuracy) if known. With a
    column model there is a pair of columns for each model.
    """
    check_confidence(confidence)
    names = ("class", "model") if "model" in data else ("class",)
    frame = tidy(data, "weight_norm", names=names, numbers=("accuracy", "norm"), optional=("low", "high"))
    if "model" not in frame:
        return _pair(frame, [_describe(frame, confidence)], measure)
    models = frame.groupby("model", sort=False)
    pairs = [_pair(own, [str(name), _describe(own, confidence)], measure) for name, own in models]
    return alt.concat(*pairs, columns=_COLUMNS, spacing=30)


def _describe(frame: pd.DataFrame, confidence: float) -> str:
    rho, low, high = correlation(frame["norm"].to_numpy(), frame["accuracy"].to_numpy(), confidence)
    if np.isnan(rho):
        return "ρ is not defined"
    within = "" if np.isnan(low) else f" ({level(confidence)} CI {fixed(low, 2)} to {fixed(high, 2)})"
    return f"ρ = {fixed(rho, 2)}{within}"


def _pair(frame: pd.DataFrame, title: list[str], measure: str) -> Chart:
    frame = frame.sort_values("accuracy", ascending=False, na_position="last", kind="stable")
    order = list(frame["class"])
    many = len(order) > MOST_LABELS
    texts = {"class": order, measure: [percent(value) for value in frame["accuracy"]]}
    if "low" in frame:
        texts["interval"] = [interval(*pair) for pair in zip(frame["low"], frame["high"], strict=True)]
    rows, tips = with_tooltips(frame, {**texts, "norm of the weights": map("{:.4g}".format, frame["norm"])})
    base = alt.Chart(table(rows), width=_WIDTH, height=_HEIGHT if many else alt.Step(_STEP)).encode(**tips)
    dots = base.mark_point(filled=True, opacity=1, size=14 if many else 30, aria=True)
    names, bare = _rows(order, named=not many), _rows(order, named=False)
    scale, axis = alt.Scale(zero=False, padding=6), alt.Axis(format="%", tickCount=4)
    accuracy, low = (alt.X(field, title=measure, axis=axis, scale=scale) for field in ("accuracy:Q", "low:Q"))
    left: Chart = dots.encode(x=accuracy, y=names, color=alt.value(_LEFT))
    if "low" in frame:
        left = base.mark_rule(color=_LEFT, aria=True).encode(x=low, x2="high:Q", y=names) + left
    norm = alt.X("norm:Q", title="norm of the weights", axis=alt.Axis(tickCount=3), scale=scale)
    right = dots.encode(x=norm, y=bare, color=alt.value(_RIGHT), shape=alt.value("diamond"))
    return alt.hconcat(left, right, title=title, spacing=12)


def _rows(order: list[str], named: bool) -> alt.Y:
    few = len(order) <= MOST_LABELS
    axis = alt.Axis(labels=named, ticks=False, domain=False, labelOverlap=False, grid=few)
    return alt.Y("class:N", sort=order, scale=alt.Scale(domain=order), title=None, axis=axis)


def from_study(studies: Mapping[str, Tables], model: str | None = None, confidence: float = 0.95) -> Chart:
    """A pair of columns for each model of weight-norm, or for one of them."""
    rows = by_model(studies, "weight_norm", model)
    return draw(pd.concat([own.assign(model=name) for name, own in rows.items()], ignore_index=True), confidence)
