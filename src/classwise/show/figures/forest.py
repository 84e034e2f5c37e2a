"""Forest plot: the accuracy of each class with simultaneous confidence intervals, runs side by side.

Šidák's correction over the classes widens the Wilson intervals until all of them hold at once with the audit's
confidence, so that any two classes may be compared at a glance. The dashed lines are the accuracies over all images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import interval, level
from classwise.core.format import percent as share
from classwise.core.records import Records
from classwise.metrics import accuracy, overall
from classwise.results.audit_result import Audit
from classwise.show.figures.style import SHAPES, Chart, ordered, run_legend, run_scale, table, under_name, with_tooltips

MOST = 30  # classes shown, unless more are asked for
EDGE = 5  # points beside 0% and 100%, in which a mark there has room
_WIDTH = 300


def draw(
    runs: Mapping[str, Records], confidence: float = 0.95, most: int = MOST, order: Sequence[str] | None = None
) -> Chart:
    """runs: the records of one attack for each run, by name.

    order: of the classes; by default the weakest of the first run on top, and of equals the weakest over all runs.
    most: of more classes than this only the weakest and the strongest are shown, and the number of the others.
    """
    frame = pd.concat(
        accuracy.compute(rows, confidence=confidence, simultaneous=True).to_frame().assign(run=name)
        for name, rows in runs.items()
    )
    totals = pd.DataFrame({"run": list(runs), "value": [overall.compute(rows).value for rows in runs.values()]})
    title = f"accuracy, with simultaneous {level(confidence)} CI"
    return dots(frame, title, domain=(0.0, 1.0), percent=True, totals=totals, most=most, order=order)


def dots(
    frame: pd.DataFrame,
    title: str,
    domain: tuple[float, float] | None,
    percent: bool,
    totals: pd.DataFrame | None = None,
    most: int = MOST,
    order: Sequence[str] | None = None,
) -> Chart:
    """A value and its interval for each class, a line for each; the runs of a class below one another.

    frame: columns run, class, n, value, low, high. totals: columns run, value.
    """
    runs = frame["run"].unique().tolist()
    tie = frame.groupby("class")["value"].transform("mean")
    rows = chosen_rows(frame.assign(tie=tie)[frame["run"] == runs[0]], most, order)
    shown, tips = with_tooltips(*_texts(frame[frame["class"].isin(rows)], percent))
    scale = alt.Scale(domain=list(domain), nice=False, padding=EDGE) if domain else alt.Scale(zero=True)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(format="%" if percent else ".6~g", grid=True))
    colour = alt.Color("run:N", scale=run_scale(runs), legend=run_legend(runs))
    shape = alt.Shape("run:N", scale=run_scale(runs, SHAPES), legend=run_legend(runs))
    base = alt.Chart(table(shown)).encode(
        y=class_rows(rows),
        yOffset=alt.YOffset("run:N", sort=None, scale=alt.Scale(domain=runs)) if len(runs) > 1 else alt.Undefined,
        color=colour,
        **tips,
    )
    layers = [
        base.mark_rule(strokeWidth=1.4, opacity=0.75, aria=True).encode(
            x=alt.X("low:Q", scale=scale, title=title), x2="high:Q"
        ),
        base.mark_point(filled=True, size=34, opacity=1, aria=True).encode(x=x, shape=shape),
    ]
    if totals is not None:
        line = alt.Chart(table(totals)).mark_rule(strokeDash=[4, 3], strokeWidth=1, opacity=0.8)
        layers.insert(0, line.encode(x=x, color=colour))
    between = alt.Step(max(12, 8 * len(runs)), **{"for": "position"})
    return alt.layer(*layers, width=_WIDTH, height=between)


def _texts(frame: pd.DataFrame, percent: bool) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """The rows, and the texts of their tooltips."""
    ends = list(zip(frame["low"], frame["high"], strict=True))
    return frame, {
        "run": frame["run"].astype(str).tolist(),
        "class": frame["class"].astype(str).tolist(),
        "value": [share(value) if percent else f"{value:.4g}" for value in frame["value"]],
        "interval": [interval(*pair) if percent else "{:.4g} to {:.4g}".format(*pair) for pair in ends],
        "n": [f"{n:,}" for n in frame["n"]],
    }


def class_rows(names: Sequence[str]) -> alt.Y:
    """A row for each of the names, in their order."""
    axis = alt.Axis(ticks=False, domain=False, labelPadding=6)
    return alt.Y("class:N", sort=None, title=None, scale=alt.Scale(domain=list(names)), axis=axis)


def chosen_rows(first: pd.DataFrame, most: int, order: Sequence[str] | None) -> list[str]:
    """The classes shown, and one line with the number of those left out.

    first: columns class, value, and where there is one tie, which orders classes of the same value.
    """
    if most < 2:
        raise UserError(f"most must be at least 2, the weakest and the strongest class; got {most}.")
    keys = [key for key in ("value", "tie") if key in first]
    by_value = first.sort_values(keys, kind="stable", na_position="last")["class"].tolist()
    names = by_value if order is None else ordered(by_value, order)
    if len(names) <= most:
        return names
    top = most - most // 2
    return [*names[:top], f"… {len(names) - most} more …", *names[-(most // 2) :]]


def from_runs(
    audits: Mapping[str, Audit], attack: str | None = None, most: int = MOST, order: tuple[str, ...] | None = None
) -> Chart:
    """All audits in one plot; the confidence is the first one's."""
    confidence = next(iter(audits.values())).confidence
    chart = draw({name: audit.rows(attack) for name, audit in audits.items()}, confidence, most, order)
    return under_name(chart, list(audits))
