"""Confusion under attack: true class by predicted class, ordered by superclass or by the groups found in it.

Tian et al. (KDD 2021), Figure 2: with attacks most errors stay inside a superclass, and the matrix is nearly symmetric.
Up to a dozen classes the shares are written into the cells; up to 150 each class has its row, with lines between the
superclasses or groups; beyond that a row is a whole superclass or group, and the most frequent confusions of single
classes are listed beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import altair as alt
import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import percent
from classwise.core.records import Records
from classwise.metrics import confusion, groups, superclass
from classwise.results.audit_result import Audit
from classwise.show.figures.style import (
    FAINT,
    PALETTE,
    SEQUENTIAL,
    Chart,
    Look,
    label_angle,
    ordered,
    side_by_side,
    table,
    with_tooltips,
)
from classwise.stats.intervals import Array, ratio

By: TypeAlias = Literal["superclass", "group", "class"]
#: Groups of classes by name, in the order of the rows.
Blocks: TypeAlias = dict[str, tuple[str, ...]]

_MOST_ROWS = 150  # beyond this a row is a block of classes
_MOST_BLOCKS = 40
_MOST_LABELS = 40  # rows whose names are of the usual size; beyond it blocks are named, or small letters used
_MOST_NUMBERS = 12  # rows whose values are written into the cells
_MOST_PAIRS = 15  # confusions listed beside blocks
_LETTER, _SMALLEST = 8, 4  # points of the names of blocks, and of classes at the least
_CELL, _SIDE = 26, 430  # points of a cell where there is room, and of the whole where there is not


def draw(records: Records, order: Sequence[str] | None = None, diagonal: bool = False, by: By | None = None) -> Chart:
    """Shares of each true class. Without the diagonal, next to which errors look faint, unless asked for.

    order: class names in the order wanted, instead of `by`.
    by: what classes are grouped by: the data's superclasses (default where there are any), the groups found in the
    confusion (default beyond a dozen classes), or nothing: classes in their own order.
    """
    return matrix(
        confusion.compute(records), records.class_names, arrange(records, order, by), shares=True, diagonal=diagonal
    )


def from_runs(
    audits: Mapping[str, Audit],
    attack: str | None = None,
    order: tuple[str, ...] | None = None,
    diagonal: bool = False,
    by: By | None = None,
) -> Chart:
    """The confusion of each audit, side by side; all in the order of the first."""
    return panels(audits, attack, order, by, shares=True, diagonal=diagonal)


def panels(
    audits: Mapping[str, Audit],
    attack: str | None,
    order: Sequence[str] | None,
    by: By | None,
    shares: bool,
    diagonal: bool = False,
) -> Chart:
    """A matrix for each audit, side by side; all in the order of the first."""
    first, *_ = audits.values()
    blocks = arrange(first.rows(attack), order, by)
    charts = {}
    for name, audit in audits.items():
        rows = audit.rows(attack)
        if rows.class_names != first.records.class_names:
            raise UserError(f"{name} has other classes than {next(iter(audits))}: draw them one by one.")
        charts[name] = matrix(confusion.compute(rows), rows.class_names, blocks, shares, diagonal)
    return side_by_side(charts)


def arrange(records: Records, order: Sequence[str] | None = None, by: By | None = None) -> Blocks:
    """The order of the rows, as blocks of classes; a single block where they are not grouped."""
    names, known = records.class_names, records.meta.superclasses
    if order is not None:
        return {"": tuple(ordered(names, order))}
    if by is None:
        by = "superclass" if known else "group" if len(names) > _MOST_NUMBERS else "class"
    if by == "superclass":
        superclass.superclass_of(records)  # there are some, and each class is in one
        return dict(known or {})
    return {"": names} if by == "class" else _found(records)


def _found(records: Records) -> Blocks:
    """The groups found in the confusion, in the order of their tree, each by its first class and how many more."""
    found = groups.compute(records)
    if records.num_classes > _MOST_ROWS and len(found.members) > _MOST_BLOCKS:
        found = groups.compute(records, count=_MOST_BLOCKS)
    of = dict(zip(found.class_names, found.number.tolist(), strict=True))
    members: dict[int, list[str]] = {}
    for name in found.order:
        members.setdefault(of[name], []).append(name)
    titles = {number: own[0] + (f" +{len(own) - 1}" if len(own) > 1 else "") for number, own in members.items()}
    return {titles[number] if number >= 0 else "no images": tuple(own) for number, own in members.items()}


def matrix(counts: Array, class_names: Sequence[str], blocks: Blocks, shares: bool, diagonal: bool = False) -> Chart:
    """Counts of true class by predicted class, drawn as shares of each row or as they are.

    Rows and columns follow the blocks; beyond 150 classes they are the blocks.
    """
    names = [name for members in blocks.values() for name in members]
    at = {name: number for number, name in enumerate(class_names)}
    place = [at[name] for name in names]
    sorted_counts = counts[np.ix_(place, place)]
    if len(names) > _MOST_ROWS and len(blocks) > 1:
        return _pooled(sorted_counts, names, blocks, shares)
    cells = _cells(sorted_counts, sorted_counts.sum(axis=1), names)
    shown = cells if diagonal else cells[cells["true"] != cells["predicted"]]
    return _heat(shown, names, blocks if len(blocks) > 1 else {}, shares)


def _cells(counts: Array, images: Array, names: Sequence[str]) -> pd.DataFrame:
    rows, columns = np.indices(counts.shape).reshape(2, -1)
    frame = pd.DataFrame({"true": np.take(names, rows), "predicted": np.take(names, columns)})
    return frame.assign(share=ratio(counts, images[:, None]).reshape(-1), images=counts.reshape(-1))


def _heat(cells: pd.DataFrame, names: Sequence[str], blocks: Blocks, shares: bool) -> Chart:
    """The cells as a heat map, with numbers where there is room and lines between the blocks."""
    size = len(names)
    side = _CELL * size if size <= _MOST_NUMBERS else min(_SIDE, 16 * size)
    titles = _titles(blocks, side / size) if size > _MOST_LABELS else {}
    written = size <= _MOST_NUMBERS
    x, y = _axes(names, side / size, titles, ("% of true class" if shares else "images") if written else None)
    filled = cells if written else cells[cells["images"] > 0]  # of many cells most are empty
    rows, tips = with_tooltips(filled, _texts(filled))
    base = alt.Chart(table(rows)).encode(x=x, y=y, **tips)
    what = "share" if shares else "images"
    # Shades by the root: of many classes a few cells would leave all others white.
    scale = alt.Scale(scheme=SEQUENTIAL, domainMin=0, type="linear" if written else "sqrt")
    legend = None if written else _legend(shares)
    layers = [base.mark_rect(aria=True).encode(color=alt.Color(f"{what}:Q", scale=scale, legend=legend))]
    if written:
        layers.append(_numbers(base, cells, what))
    layers += _borders(blocks, x, y)
    layers += _block_names(titles, x, y)
    return alt.layer(*layers, width=side, height=side)


def _texts(cells: pd.DataFrame) -> dict[str, Iterable[str]]:
    """The tooltips of cells."""
    numbers = {"share": map(percent, cells["share"]), "images": map("{:,.0f}".format, cells["images"])}
    return {"true": cells["true"], "predicted": cells["predicted"], **numbers}


def _legend(shares: bool) -> alt.Legend:
    """Above the matrix: beside it, it would take the width of a paper's column from the cells."""
    look: Look = {"orient": "top", "titleOrient": "left", "gradientLength": 120, "gradientThickness": 8, "tickCount": 4}
    return alt.Legend(format="%" if shares else "d", title="share of true class" if shares else "images", **look)


def _titles(blocks: Blocks, cell: float) -> dict[str, str]:
    """The class in the middle of each block and the block's name, if there is room to write them all."""
    fits = len(blocks) > 1 and min(map(len, blocks.values())) * cell >= _LETTER
    return {members[len(members) // 2]: name for name, members in blocks.items()} if fits else {}


def _axes(names: Sequence[str], cell: float, titles: Mapping[str, str], written: str | None) -> tuple[alt.X, alt.Y]:
    """Classes downwards and across; unnamed where blocks are named in their place or letters would be too small.

    written: what the numbers in the cells are.
    """
    letters = min(9, int(0.95 * cell))
    domain = alt.Scale(domain=list(names), paddingInner=0, paddingOuter=0)
    look: Look = {"ticks": False, "domain": False, "labelOverlap": False, "labels": not titles and letters >= _SMALLEST}
    look |= {"labelFontSize": max(letters, _SMALLEST)}
    if titles:  # which are not labels of the axis, so that it does not know their length
        look |= {"titlePadding": 0.55 * _LETTER * max(map(len, titles.values())) + 6}
    title = "predicted class" + (f" ({written})" if written else "")
    x = alt.X("predicted:N", sort=None, title=title, scale=domain, axis=alt.Axis(labelAngle=label_angle(names), **look))
    return x, alt.Y("true:N", sort=None, title="true class", scale=domain, axis=alt.Axis(**look))


def _numbers(base: Chart, cells: pd.DataFrame, what: str) -> Chart:
    """Percentages or counts in the cells, none in empty ones; white on dark."""
    dark = alt.datum[what] > 0.6 * max(float(cells[what].max()), 1e-9)
    number = base.transform_calculate(number="datum.share * 100" if what == "share" else "datum.images")
    return number.mark_text(fontSize=7.5).encode(
        text=alt.Text("number:Q", format=".0f"),
        color=alt.condition(dark, alt.value("white"), alt.value("black")),
        opacity=alt.condition(alt.datum.images > 0, alt.value(1), alt.value(0)),
    )


def _borders(blocks: Blocks, x: alt.X, y: alt.Y) -> list[Chart]:
    """Lines between the blocks: after the last class of each but the last."""
    last = [members[-1] for members in blocks.values()][:-1]
    if not last:
        return []
    ends = pd.DataFrame({"true": last, "predicted": last})
    lines = alt.Chart(table(ends)).mark_rule(color=FAINT, strokeWidth=0.5, aria=False)
    after_x, after_y = x.copy(), y.copy()
    after_x["bandPosition"] = after_y["bandPosition"] = 1
    return [lines.encode(x=after_x), lines.encode(y=after_y)]


def _block_names(titles: Mapping[str, str], x: alt.X, y: alt.Y) -> list[Chart]:
    if not titles:
        return []
    frame = pd.DataFrame({"true": list(titles), "predicted": list(titles), "name": list(titles.values())})
    base = alt.Chart(table(frame)).encode(text="name:N")
    side, below = alt.value(0), alt.expr("height")
    look: Look = {"align": "right", "baseline": "middle", "fontSize": _LETTER}
    return [
        base.mark_text(dx=-4, **look).encode(x=side, y=y),
        base.mark_text(angle=270, dx=-4, y=below, **look).encode(x=x),
    ]


def _pooled(counts: Array, names: Sequence[str], blocks: Blocks, shares: bool) -> Chart:
    """Blocks by blocks, the errors inside a block on the diagonal, and the most frequent confusions of classes."""
    images = counts.sum(axis=1)
    errors = counts - np.diag(np.diag(counts))
    begins = np.cumsum([0, *(len(members) for members in blocks.values())][:-1])
    pooled = np.add.reduceat(np.add.reduceat(errors, begins, axis=0), begins, axis=1)
    cells = _cells(pooled, np.add.reduceat(images, begins), list(blocks))
    return alt.hconcat(_heat(cells, list(blocks), {}, shares), _pairs(_cells(errors, images, names), shares))


def _pairs(cells: pd.DataFrame, shares: bool) -> Chart:
    """The confusions of most images, as bars."""
    most = cells[cells["images"] > 0].nlargest(_MOST_PAIRS, ["images", "share"])
    what, title = ("share", "share of true class") if shares else ("images", "images")
    rows, tips = with_tooltips(most.assign(pair=most["true"] + " → " + most["predicted"]), _texts(most))
    y = alt.Y(
        "pair:N", sort=None, title=None, scale=alt.Scale(domain=rows["pair"].tolist()), axis=alt.Axis(ticks=False)
    )
    return (
        alt.Chart(table(rows), width=90, height=alt.Step(12), title="most frequent")
        .mark_bar(color=PALETTE[0], height=8, aria=True)
        .encode(
            x=alt.X(f"{what}:Q", title=title, axis=alt.Axis(format="%" if shares else "d", tickCount=3)),
            y=y,
            **tips,
        )
    )
