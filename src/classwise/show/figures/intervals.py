"""Number of classes in each interval of robust accuracy, for data sets of many classes.

Tian et al. (2020), Figure 6. Intervals are open to the left and closed to the right, (10%, 20%], but the first, which
holds 0. Classes without examples are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show.figures.style import Chart, run_legend, run_scale, table, under_name, with_tooltips

_WIDTH, _HEIGHT = 300, 170


def draw(runs: Mapping[str, Records], step: float = 0.1) -> Chart:
    """runs: the records of one attack for each run, by name; step: the width of an interval, a whole part of 1."""
    bins = round(1 / step) if step > 0 else 0
    if bins < 2 or abs(bins * step - 1) > 1e-9:
        raise UserError(f"step must divide 1 into two intervals or more, such as 0.1 or 0.25; got {step:g}.")
    labels = [f"{'[' if i == 0 else '('}{100 * i / bins:g}, {100 * (i + 1) / bins:g}]" for i in range(bins)]
    frame = pd.concat(
        pd.DataFrame({"run": name, "interval": labels, "classes": count(accuracy.seen(rows), bins)})
        for name, rows in runs.items()
    )
    legend = run_legend(list(runs))
    about = {"run": frame["run"], "robust accuracy (%)": frame["interval"]}
    rows, tips = with_tooltips(frame, {**about, "classes": map("{:,}".format, frame["classes"])})
    return (
        alt.Chart(table(rows), width=_WIDTH, height=_HEIGHT)
        .mark_bar(aria=True)
        .encode(
            x=alt.X(
                "interval:N",
                sort=None,
                title="robust accuracy (%)",
                scale=alt.Scale(domain=labels, paddingInner=0.25),
                axis=alt.Axis(labelAngle=-45),
            ),
            xOffset=alt.XOffset("run:N", sort=None, scale=alt.Scale(domain=list(runs))),
            y=alt.Y("classes:Q", title="number of classes", axis=alt.Axis(tickMinStep=1, format="d", grid=True)),
            color=alt.Color("run:N", scale=run_scale(list(runs)), legend=legend),
            **tips,
        )
    )


def count(values: np.ndarray[tuple[int], np.dtype[np.float64]], bins: int) -> list[int]:
    """How many values lie in each of `bins` intervals of [0, 1]; 0.3 is in (0.2, 0.3] whatever its last bit."""
    number = np.ceil(np.round(values * bins, 9)).astype(int) - 1
    return [int(n) for n in np.bincount(np.maximum(number, 0), minlength=bins)]


def from_runs(audits: Mapping[str, Audit], attack: str | None = None, step: float = 0.1) -> Chart:
    """All audits in one plot, bars side by side."""
    return under_name(draw({name: audit.rows(attack) for name, audit in audits.items()}, step), list(audits))
