"""Robustness of each class against the radius of the attack, from clean images on.

From an audit along several radii (``--eps 2/255,4/255,8/255``): the points of `Audit.curve()`, with intervals of the
highlighted classes; all images together are the dashed line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.show.figures.frames import tidy
from classwise.show.figures.lines import BESIDE, draw_lines
from classwise.show.figures.style import Chart, side_by_side

_PIXEL = 255  # levels of a colour channel, in which small radii are given


def draw(points: pd.DataFrame, highlight: Sequence[str] | None = None) -> Chart:
    """points: columns eps, class, n, accuracy, low, high, of one attack, as `Audit.curve()` gives for each family."""
    points = tidy(points, "curve", names=("class",), numbers=("eps", "n", "accuracy", "low", "high"))
    if points["eps"].nunique() < 2:
        raise UserError("a curve needs at least two radii, clean images counting as 0. Audit with an attack.")
    unit = _PIXEL if _in_pixels(points["eps"]) else 1
    frame = points.assign(x=points["eps"] * unit, value=points["accuracy"]).sort_values("x", kind="stable")
    scale = alt.Scale(domain=[float(frame["x"].min()), float(frame["x"].max())], nice=False, padding=BESIDE)
    title = f"ε (in 1/{_PIXEL})" if unit == _PIXEL else "ε"
    right = (frame["accuracy"] * frame["n"]).groupby(frame["x"]).sum()
    overall = (right / frame.groupby("x")["n"].sum()).rename("value").reset_index()
    return draw_lines(
        frame[["x", "class", "value", "low", "high"]],
        _weakest_first(frame) if highlight is None else highlight,
        alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6)),
        y="accuracy",
        domain=(0.0, 1.0),
        overall=overall,
    )


def _weakest_first(frame: pd.DataFrame) -> list[str]:
    """The two classes of lowest and the two of highest mean accuracy: at the largest radius all may be at 0."""
    mean = frame.dropna(subset=["value"]).groupby("class", sort=False)["value"].mean().sort_values(kind="stable")
    return list(dict.fromkeys((*mean.index[:2], *mean.index[-2:])))


def _in_pixels(eps: pd.Series[float]) -> bool:
    levels = eps.to_numpy() * _PIXEL
    return bool(levels.max() <= 64 and np.allclose(levels, levels.round(), atol=1e-4))


def from_runs(
    audits: Mapping[str, Audit], family: str | None = None, highlight: tuple[str, ...] | None = None
) -> Chart:
    """A panel for each audit and attack.

    family: of the attacks, one; by default all of them.
    """
    charts = {}
    for name, audit in audits.items():
        points = audit.curve()
        families = list(dict.fromkeys(points["family"]))
        if family is not None and family not in families:
            raise UserError(f"{name} has no attack {family!r}; it has {', '.join(families)}.")
        for own in families if family is None else [family]:
            title = name if len(families) == 1 else f"{name}: {own}"
            charts[title] = draw(points[points["family"] == own], highlight)
    return side_by_side(charts)
