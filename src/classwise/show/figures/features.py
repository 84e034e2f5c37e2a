"""A map of the features of clean and of adversarial images, each class marked and named at its centre.

Tian et al. ("Intriguing class-wise properties of adversarial training", 2020), Figure 8: a t-SNE of CIFAR-10 keeps
animals and vehicles apart under attack, while the classes inside each overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from classwise.core.errors import check_known
from classwise.show.figures.frames import Tables, by_model, tidy
from classwise.show.figures.style import FAINT, PALETTE, SHAPES, Chart, run_legend, side_by_side, table, with_tooltips

_COLOURS = [colour for colour in PALETTE if colour not in ("#000000", "#F0E442")]  # invisible on a dark or a white page
_MOST_NAMES = 40
_MANY_POINTS = 3000  # from here on they are small
_SIDE = 260


def draw(data: pd.DataFrame, highlight: Sequence[str] | None = None) -> Chart:
    """A panel per kind, in the order of the table; colour and shape show the class, or its group where there is one.

    data: one row per image and kind: x, y, class, kind (such as clean and adversarial), and group (a superclass) if
    wanted. The panels share their axes, so that a map made of both kinds together shows what moved.
    highlight: only these classes in colour and named.
    """
    by = "group" if "group" in data else "class"
    frame = tidy(data, "features", names=tuple(dict.fromkeys(("class", "kind", by))), numbers=("x", "y"))
    classes, kinds = list(frame["class"].unique()), list(frame["kind"].unique())
    chosen = classes if highlight is None else list(highlight)
    check_known("class", classes, *chosen)
    looks = _Looks(by, list(frame.loc[frame["class"].isin(chosen), by].unique()))
    x, y = _place(frame, "x", alt.X), _place(frame, "y", alt.Y)
    panels = [_panel(frame[frame["kind"] == kind], chosen, looks, x, y).properties(title=kind) for kind in kinds]
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels, spacing=16)


class _Looks:
    """A colour and a shape for each class or group; pairs repeat only after all others were used."""

    def __init__(self, by: str, keys: list[str]) -> None:
        places = range(len(keys))
        colours = [_COLOURS[at % len(_COLOURS)] for at in places]
        shapes = [SHAPES[(at + at // len(_COLOURS)) % len(SHAPES)] for at in places]
        legend = run_legend(keys) if by == "group" else None  # classes are named where they lie
        self.colour = alt.Color(f"{by}:N", scale=alt.Scale(domain=keys, range=colours), legend=legend)
        self.shape = alt.Shape(f"{by}:N", scale=alt.Scale(domain=keys, range=shapes), legend=legend)


def _place(frame: pd.DataFrame, axis: str, channel: type[alt.X] | type[alt.Y]) -> Chart:
    ends = [float(frame[axis].min()), float(frame[axis].max())]
    return channel(f"{axis}:Q", scale=alt.Scale(domain=ends, padding=8, nice=False, zero=False), axis=None)


def _panel(rows: pd.DataFrame, chosen: list[str], looks: _Looks, x: alt.X, y: alt.Y) -> Chart:
    on = rows["class"].isin(chosen)
    rows, tips = with_tooltips(rows, {column: rows[column] for column in ("class", "group", "kind") if column in rows})
    size = 14 if len(rows) < _MANY_POINTS else 5
    behind, front = (
        alt.Chart(table(part), width=_SIDE, height=_SIDE)
        .mark_point(filled=True, opacity=0.55, size=size, color=FAINT, aria=True)
        .encode(x=x, y=y, **tips)
        for part in (rows[~on], rows[on])
    )
    points = behind + front.encode(color=looks.colour, shape=looks.shape)
    centres = rows[on].groupby("class", sort=False)[["x", "y"]].median().reset_index()
    if len(centres) > _MOST_NAMES:
        return points
    text = alt.Chart(table(centres)).encode(x=x, y=y, text="class:N")
    halo = text.mark_text(fontSize=10, fontWeight="bold", stroke="white", strokeWidth=3, strokeJoin="round")
    return points + halo + text.mark_text(fontSize=10, fontWeight="bold", color="black")


def from_study(
    studies: Mapping[str, Tables], model: str | None = None, highlight: tuple[str, ...] | None = None
) -> Chart:
    """A row for each model of tsne, or for one of them."""
    rows = by_model(studies, "features", model)
    return side_by_side({name: draw(own, highlight) for name, own in rows.items()}, columns=1)
