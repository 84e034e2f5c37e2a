"""Class-wise accuracy on held-out images over the epochs of a training, with the gap between best and worst class.

Tian et al. (KDD 2021), Figure 1: the classes diverge early, and the gap stays. The range from the weakest to the
strongest class of each epoch is shaded, the dashed line is the accuracy over all images, the vertical one the epoch
whose model was selected.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import percent
from classwise.metrics.worst import label
from classwise.show.figures.lines import Domain, draw_lines
from classwise.show.figures.style import Chart, Look, side_by_side, table, with_tooltips

What = Literal["robust", "clean"]


def draw(
    history: pd.DataFrame,
    what: What = "robust",
    highlight: Sequence[str] | None = None,
    domain: Domain | None = None,
    subtract_mean: bool = False,
) -> Chart:
    """history: the table in history.csv, with the columns epoch, robust and robust:CLASS (clean likewise).

    subtract_mean: with the mean of the classes subtracted in each epoch (Benz et al. 2020, Figures 1 and 2).
    """
    points = by_class(history, what)
    if points.empty:
        raise UserError(
            f"this history has no {what} accuracy of classes (columns {what}:CLASS): the training had no validation "
            "images. Train with data.validation above 0."
        )
    marks = _selected(history, points, what)
    overall = history[["epoch", what]].set_axis(["x", "value"], axis=1).dropna()
    if subtract_mean:
        points, overall = _off_mean(points), overall[:0]
    drawn = draw_lines(
        points,
        highlight,
        epoch_axis(history),
        y=f"{what} accuracy" + (" minus the mean" if subtract_mean else ""),
        domain=domain or _domain([points], subtract_mean),
        overall=overall if len(overall) else None,
        behind=marks[:1],
    )
    return alt.layer(drawn, *marks[1:]) if marks else drawn


def by_class(history: pd.DataFrame, what: str) -> pd.DataFrame:
    """The columns what:CLASS as rows x (the epoch), class, value; what is not finite is left out."""
    if "epoch" not in history:
        raise UserError(f"a history has a column epoch; this one has {', '.join(map(str, history.columns)) or 'none'}.")
    own = [column for column in history if str(column).startswith(f"{what}:")]
    wide = history[own].set_axis([str(column).removeprefix(f"{what}:") for column in own], axis=1)
    long = wide.assign(x=history["epoch"]).melt("x", var_name="class", value_name="value")
    return long[np.isfinite(long["value"].astype(float))].reset_index(drop=True)


def _selected(history: pd.DataFrame, points: pd.DataFrame, what: What) -> list[Chart]:
    """A vertical line at the epoch whose model was selected, where the history says which, and its name."""
    known = history["best_epoch"].dropna() if "best_epoch" in history else history["epoch"][:0]
    if known.empty:
        return []
    epoch, x = int(known.iloc[-1]), epoch_axis(history)
    later = epoch > (history["epoch"].min() + history["epoch"].max()) / 2
    beside: Look = {"align": "right", "dx": -4} if later else {"align": "left", "dx": 4}
    frame = pd.DataFrame({"x": [epoch], "text": [f"epoch {epoch} selected"]})
    rows, tips = with_tooltips(frame, {"selected epoch": [str(epoch)], **_lowest(points[points["x"] == epoch], what)})
    base = alt.Chart(table(rows)).encode(x=x)
    return [
        base.mark_rule(style="ink", strokeDash=[2, 2], opacity=0.7, aria=True).encode(**tips),
        base.mark_text(style="ink", baseline="top", **beside).encode(y=alt.value(0), text="text:N"),
    ]


def _lowest(points: pd.DataFrame, what: What) -> dict[str, list[str]]:
    """The worst class of an epoch and its accuracy, as texts of a tooltip."""
    if points.empty:
        return {f"{what} accuracy": ["not measured"]}
    lowest = points["value"].min()
    return {
        "worst class": [label(points["class"][points["value"] == lowest].tolist())],
        f"its {what} accuracy": [percent(lowest)],
    }


def epoch_axis(history: pd.DataFrame) -> alt.X:
    """Whole epochs, from the first to the last."""
    first, last = int(history["epoch"].min()), int(history["epoch"].max())
    step = next(step for step in itertools.chain((1, 2, 5), itertools.count(10, 10)) if (last - first) / step <= 8)
    marks = [epoch for epoch in range(first, last + 1) if epoch % step == 0]
    scale = alt.Scale(domain=[first, max(last, first + 1)], nice=False)
    return alt.X("x:Q", title="epoch", scale=scale, axis=alt.Axis(format="d", values=marks))


def _off_mean(points: pd.DataFrame) -> pd.DataFrame:
    return points.assign(value=points["value"] - points.groupby("x")["value"].transform("mean"))


def _domain(tables: Sequence[pd.DataFrame], subtract_mean: bool) -> Domain:
    """From 0, or from below the lowest class, to above the highest by whole tenths: weak models are not flat lines."""
    if not tables:
        return 0.0, 1.0
    values = pd.concat(tables)["value"]
    low, high = float(np.floor(10 * values.min()) / 10), float(np.ceil(10 * values.max() + 1e-9) / 10)
    return (low, high) if subtract_mean else (0.0, min(1.0, high or 0.1))


def from_history(
    histories: Mapping[str, pd.DataFrame],
    what: What = "robust",
    highlight: tuple[str, ...] | None = None,
    subtract_mean: bool = False,
) -> Chart:
    """A panel for each training, all with one scale.

    subtract_mean: with the mean of the classes subtracted in each epoch.
    """
    found = [points for history in histories.values() if len(points := by_class(history, what))]
    domain = _domain([_off_mean(points) if subtract_mean else points for points in found], subtract_mean)
    return side_by_side(
        {name: draw(history, what, highlight, domain, subtract_mean) for name, history in histories.items()}
    )
