"""Class accuracies against a swept setting: the classes it changes in colour, the gap between best and worst shaded.

Tian et al. (KDD 2021), Figure 4c, sweep the β of one class of TRADES; Li and Liu (WAT, AAAI 2023), Figure 3, the weight
of one class, beside the average and the worst class: here the dashed line and the lower edge of the shade.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.show.figures.frames import Tables, table_of, tidy
from classwise.show.figures.lines import BESIDE, draw_lines
from classwise.show.figures.style import Chart, side_by_side

_MOST_MOVED = 4  # classes highlighted where the caller names none
_MOST_TICKS = 12
_WIDE = 10


def draw(
    data: pd.DataFrame,
    setting: str = "setting",
    log: bool = False,
    highlight: Sequence[str] | None = None,
    measure: str = "robust accuracy",
) -> Chart:
    """A line per class; "all" is the mean of the classes.

    data: one row per value of the setting and class: value, class, accuracy (a fraction), and low and high if known.
    setting, measure: the titles of the axes. log: the setting on a logarithmic axis.
    highlight: classes to highlight; by default those the setting changes most.
    """
    frame = tidy(data, "sweep", names=("class",), numbers=("value", "accuracy"), optional=("low", "high"))
    ticks = np.sort(frame["value"].unique()).tolist()
    if len(ticks) < 2:
        raise UserError(f"a sweep needs at least two values of {setting}; the column value holds only {ticks[0]:g}.")
    if log and ticks[0] <= 0:
        raise UserError(f"a logarithmic axis has no place for {setting} {ticks[0]:g}; leave it out or use log=False.")
    frame = frame.rename(columns={"value": "x", "accuracy": "value"}).sort_values("x", kind="stable")
    if highlight is None:
        values = frame.groupby("class", sort=False)["value"]
        moved = (values.max() - values.min()).sort_values(ascending=False, kind="stable")
        highlight = list(moved.index[:_MOST_MOVED])
    scale = alt.Scale(
        type="log" if log else "linear", domain=[ticks[0], ticks[-1]], nice=False, zero=False, padding=BESIDE
    )
    axis = alt.Axis(values=ticks, format="~g") if len(ticks) <= _MOST_TICKS else alt.Axis(format="~g")
    return draw_lines(
        frame,
        highlight,
        alt.X("x:Q", title=setting, scale=scale, axis=axis),
        y=measure,
        domain=_domain(frame),
        overall=frame.groupby("x")["value"].mean().reset_index(),
    )


def _domain(frame: pd.DataFrame) -> tuple[float, float]:
    """Tenths around all that is drawn, so that a sweep of small effect is not flat; within [0, 1]."""
    drawn = frame[[column for column in ("value", "low", "high") if column in frame]].to_numpy(dtype=np.float64)
    low, high = np.floor(10 * np.nanmin(drawn)) / 10, np.ceil(10 * np.nanmax(drawn)) / 10
    low, high = max(low, 0.0), min(high, 1.0)
    return float(low), float(high if high > low else low + 0.1)


def from_study(
    studies: Mapping[str, Tables], log: bool | None = None, highlight: tuple[str, ...] | None = None
) -> Chart:
    """A panel for each study that sweeps a setting: beta, weight, eta.

    log: by default where the values span more than a factor of ten.
    """
    charts = {}
    for name, own in table_of(studies, "sweep").items():
        chosen = wants_log(own["value"].tolist()) if log is None else log
        charts[name] = draw(own, own["setting"].iloc[0], log=chosen, highlight=highlight)
    return side_by_side(charts)


def wants_log(values: Iterable[float]) -> bool:
    """Whether values are better seen on a logarithmic axis: they span more than a factor of ten."""
    known = list(values)
    return min(known) > 0 and max(known) / min(known) > _WIDE
