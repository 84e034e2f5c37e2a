"""One image's confidence in each class along an attack's steps, two attacks side by side.

Tian et al. (KDD 2021), Figure 3b–d: under PGD the true class of an image stays ahead at steps 1, 10 and 20, because the
model's confidence is smooth; Temperature-PGD moves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError, check_known
from classwise.core.format import percent
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import Chart, run_legend, run_scale, side_by_side, table, with_tooltips

_MOST_STEPS = 3  # shown where the caller names none
_WIDTH = 130
_BAR = 7  # points


def draw(
    data: pd.DataFrame, true_class: str | None = None, steps: Sequence[int] | None = None, most: int = 10
) -> Chart:
    """A panel per step, a group of bars per class, a bar per attack; the true class is marked beside its name.

    data: one row per step, class and attack: step, class, probability, attack.
    steps: which to show; by default the first, the last and one between.
    most: classes shown by name, those with the highest probabilities and the true one; the rest share one bar.
    """
    frame = tidy(data, "confidence_path", names=("class", "attack"), numbers=("step", "probability"))
    classes = list(frame["class"].unique())
    check_known("class", classes, true_class)
    frame = _of_steps(frame, steps)
    named = _named(frame, classes, true_class, most)
    frame, rest = _gathered(frame, named, len(classes) - len(named))
    order = _marked([*named, *rest], true_class)
    frame["label"] = _marked(frame["class"], true_class)
    attacks, longest = list(frame["attack"].unique()), float(frame["probability"].max())
    panels = [
        _panel(own, order, attacks, longest, at == 0).properties(title=alt.Title(f"step {step:g}", frame="group"))
        for at, (step, own) in enumerate(frame.groupby("step"))
    ]
    return alt.hconcat(*panels, spacing=12)


def _panel(rows: pd.DataFrame, order: list[str], attacks: list[str], longest: float, first: bool) -> Chart:
    names = alt.Axis(labels=first, ticks=False, labelOverlap=False)
    axis = alt.Axis(format="%", tickCount=3)
    numbers = {"step": map("{:g}".format, rows["step"]), "confidence": map(percent, rows["probability"])}
    shown, tips = with_tooltips(rows, {"class": rows["class"], "attack": rows["attack"], **numbers})
    return (
        alt.Chart(table(shown), width=_WIDTH, height=alt.Step(_BAR, **{"for": "offset"}))
        .mark_bar(aria=True)
        .encode(
            x=alt.X("probability:Q", title="confidence", axis=axis, scale=alt.Scale(domain=[0, longest], nice=True)),
            y=alt.Y("label:N", sort=order, scale=alt.Scale(domain=order), title=None, axis=names),
            yOffset=alt.YOffset("attack:N", sort=attacks),
            color=alt.Color("attack:N", scale=run_scale(attacks), legend=run_legend(attacks)),
            **tips,
        )
    )


def _marked(names: Iterable[str], true_class: str | None) -> list[str]:
    return [f"{name} (true)" if name == true_class else name for name in names]


def _of_steps(frame: pd.DataFrame, steps: Sequence[int] | None) -> pd.DataFrame:
    there = np.sort(frame["step"].unique())
    if steps is None:
        places = np.unique(np.linspace(0, len(there) - 1, min(_MOST_STEPS, len(there))).round().astype(int))
        steps = list(there[places])
    if absent := [step for step in steps if step not in there]:
        raise UserError(
            f"the table of confidence_path has no step {absent[0]}; it has {', '.join(f'{s:g}' for s in there)}."
        )
    return frame[frame["step"].isin(steps)].reset_index(drop=True)


def _named(frame: pd.DataFrame, classes: Sequence[str], truth: str | None, most: int) -> list[str]:
    """The classes shown by name, in the order of the table."""
    highest = frame.groupby("class")["probability"].max()
    if truth is not None:
        highest[truth] = np.inf
    top = set(highest.sort_values(ascending=False, kind="stable").index[: max(most, 1)])
    return [name for name in classes if name in top]


def _gathered(frame: pd.DataFrame, named: Sequence[str], others: int) -> tuple[pd.DataFrame, list[str]]:
    """The probabilities of the classes without a bar of their own as one, and its name."""
    if others == 0:
        return frame, []
    name = f"{others} others"
    apart = frame["class"].isin(named)
    left = frame[~apart].groupby(["attack", "step"], sort=False, as_index=False)["probability"].sum()
    return pd.concat([frame[apart], left.assign(**{"class": name})], ignore_index=True), [name]


def from_study(
    studies: Mapping[str, Tables], model: str | None = None, steps: tuple[int, ...] | None = None, most: int = 10
) -> Chart:
    """A row for each model of temperature, or for one of them."""
    rows = by_model(studies, "confidence_path", model)
    return side_by_side(
        {name: draw(own, own["true_class"].iloc[0], steps or usual_steps(own), most) for name, own in rows.items()},
        columns=1,
    )


def usual_steps(path: pd.DataFrame) -> list[int]:
    """The first step, the middle one and the last, as the paper shows them: 1, 10 and 20 of 20. 0 is the start."""
    last = int(path["step"].max())
    return list(dict.fromkeys((1, max(1, last // 2), last)))
