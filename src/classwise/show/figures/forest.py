"""Forest plot: each class with a simultaneous confidence interval, runs side by side, or groups against a control.

Šidák's correction over the classes widens the Wilson intervals until all of them hold at once with the audit's
confidence, so that any two classes may be compared at a glance. The dashed lines are the accuracies over all images.
Of groups it shows the differences over seeds and images (`results.compare_groups`), each with its own interval, and
beside them what a paper printed, where that is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from classwise.core.errors import UserError, check_known
from classwise.core.format import interval, level
from classwise.core.format import percent as share
from classwise.core.records import Records
from classwise.metrics import accuracy, overall
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import GroupComparison
from classwise.show.figures.style import SHAPES, Chart, ordered, run_legend, run_scale, table, under_name, with_tooltips

MOST = 30  # classes shown, unless more are asked for
EDGE = 5  # points beside 0% and 100%, in which a mark there has room
_WIDTH = 300
_APART = 0.3  # of a row, so that marks of several runs are seen to belong to their name


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
        y=class_rows(rows, _APART if len(runs) > 2 else None),
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
        texts = {
            "class": ["all images" if percent else "no difference"] * len(totals),
            "value": [share(value) if percent else f"{value:.4g}" for value in totals["value"]],
        }
        sums, own = with_tooltips(totals, {"run": totals["run"].astype(str).tolist(), **texts})
        line = alt.Chart(table(sums)).mark_rule(strokeDash=[4, 3], strokeWidth=1, opacity=0.8, aria=True)
        layers.insert(0, line.encode(x=x, color=colour, **own))
    between = alt.Step(max(12, (8 if len(runs) < 3 else 11) * len(runs)), **{"for": "position"})
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


def class_rows(names: Sequence[str], apart: float | None = None) -> alt.Y:
    """A row for each of the names, in their order. apart: the share of a row that lies between it and the next."""
    axis = alt.Axis(ticks=False, domain=False, labelPadding=6)
    inner = alt.Undefined if apart is None else apart
    return alt.Y("class:N", sort=None, title=None, scale=alt.Scale(domain=list(names), paddingInner=inner), axis=axis)


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


def from_groups(
    groups: GroupComparison,
    columns: tuple[str, ...] = ("worst", "average"),
    printed: Path | None = None,
    most: int = MOST,
    order: tuple[str, ...] | None = None,
) -> Chart:
    """The difference of each group from the control, in points, a mark for each metric.

    printed: a CSV file with a column `group` and one for each metric that gains in points are given for; a group may
        have several rows.
    """
    given = pd.DataFrame() if printed is None else _printed(printed, groups, columns)
    return differences(groups, given, columns, most, order)


def differences(
    groups: GroupComparison,
    given: pd.DataFrame,
    columns: Sequence[str] = ("worst", "average"),
    most: int = MOST,
    order: Sequence[str] | None = None,
) -> Chart:
    """The same with the rows of such a file."""
    table_of = groups.groups
    frames, beside = [], []
    for metric in columns:
        check_known("metric of this comparison", groups.shown, metric)
        shown = groups.shown[metric]
        if shown.unit == "number":
            raise UserError(f"{metric} is not in percent, so it has no place on this axis; draw shares such as worst.")
        own = table_of[(table_of["metric"] == metric) & (table_of["group"] != groups.control)]
        ends = {
            end: 100 * own[f"difference{part}"] for end, part in (("value", ""), ("low", "_low"), ("high", "_high"))
        }
        frames.append(pd.DataFrame({"run": shown.title, "class": own["group"], "n": own["seeds"], **ends}))
        if metric in given:
            rest = given.dropna(subset=[metric])
            none = {"low": float("nan"), "high": float("nan"), "n": 0}
            beside.append(
                pd.DataFrame({"run": f"{shown.title}, printed", "class": rest["group"], "value": rest[metric], **none})
            )
    title = f"difference from {groups.control} in points, with {level(groups.confidence)} CI"
    zero = pd.DataFrame({"run": [groups.shown[columns[0]].title], "value": [0.0]})
    names = [name for name in groups.audits if name != groups.control]
    frame = pd.concat([*frames, *beside], ignore_index=True)
    return dots(frame, title, domain=None, percent=False, totals=zero, most=most, order=order or names)


def _printed(path: Path, groups: GroupComparison, columns: Sequence[str]) -> pd.DataFrame:
    """The printed gains of the groups of a comparison."""
    try:
        found = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a CSV file ({error}).") from error
    wanted = [metric for metric in columns if metric in found]
    if "group" not in found or not wanted:
        raise UserError(
            f"{path} has the columns {', '.join(map(str, found))}; expected group, and gains in points as "
            f"{' or '.join(columns)}."
        )
    check_known(f"group in {path}", [*groups.audits], *found["group"].astype(str))
    for metric in wanted:
        found[metric] = pd.to_numeric(found[metric], errors="coerce")
    return found.assign(group=found["group"].astype(str))


def from_runs(
    audits: Mapping[str, Audit], attack: str | None = None, most: int = MOST, order: tuple[str, ...] | None = None
) -> Chart:
    """All audits in one plot; the confidence is the first one's."""
    confidence = next(iter(audits.values())).confidence
    chart = draw({name: audit.rows(attack) for name, audit in audits.items()}, confidence, most, order)
    return under_name(chart, list(audits))
