"""The style of all figures, and how they are saved: exact widths of paper columns, colours that differ for the
colour-blind and in greyscale."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt
import pandas as pd

from classwise.core.csv_files import visible
from classwise.core.errors import UserError, check_known, lookup
from classwise.core.storage import atomic_write
from classwise.show.figures import offline
from classwise.show.figures.width import WIDTHS, fitted

offline.use()  # every figure comes from a module that imports this one

#: Any Altair chart, plain or of several parts; Altair's own types for them do not compose.
Chart: TypeAlias = Any
#: Properties of a mark or an axis that several share.
Look: TypeAlias = dict[str, Any]

#: Okabe and Ito's palette (2008), in an order whose neighbours also differ in grey.
PALETTE = ("#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#000000", "#CC79A7", "#F0E442")
#: Shapes that go with the palette, so that colour is never the only difference.
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left", "triangle-right")
#: Dashes that go with the palette.
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 3], [3, 1])
#: For the background: the grid, and classes that are not highlighted; visible on white and on black.
FAINT = "#9a9a9a"
#: For secondary text, legible on white and on black.
QUIET = "#757575"
#: For shares: one hue whose lightness encodes the value.
SEQUENTIAL: Literal["blues"] = "blues"
#: Classes named beside a plot; the names of more would overlap.
MOST_LABELS = 40
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

_SCALE = 4  # pixels of a PNG for each point
_SHORT = 2  # letters that fit into a cell
_LEGEND_LETTERS = 44  # in a row of the legend, which must fit a column


def styled(chart: Chart, background: str | None = "white", ink: str = "#1a1a1a") -> Chart:
    """The chart in the common style. A page passes no background and its own ink, so that light and dark both work.

    Marks that are to be in ink have ``style="ink"``.
    """
    themed = chart.copy()
    themed.config = alt.Config(**look(background, ink))
    return themed


def look(background: str | None = "white", ink: str = "#1a1a1a") -> dict[str, Any]:
    """The common style, as the config of a chart."""
    labels = {
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 9,
        "titleFontSize": 10,
        "titleFontWeight": "normal",
        "labelColor": ink,
        "titleColor": ink,
        "labelLimit": 260,
    }
    return {
        "background": background or "transparent",
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 200},
        "axis": {**labels, "grid": False, "domainColor": FAINT, "tickColor": FAINT, "gridColor": FAINT}
        | {"gridOpacity": 0.3, "tickSize": 3, "labelFlush": False},
        "legend": {**labels, "symbolSize": 60, "titleLimit": 260},
        "header": {key: value for key, value in labels.items() if key != "labelLimit"},
        "title": {"font": FONT, "fontSize": 11, "anchor": "start", "fontWeight": "normal", "color": ink},
        "text": {"font": FONT, "fontSize": 9, "color": ink},
        "style": {"ink": {"color": ink}},
        "range": {"category": list(PALETTE)},
    }


# ---- pieces that figures share -----------------------------------------------------------------------------


def table(frame: pd.DataFrame) -> alt.InlineData:
    """The rows as a chart's data, however many; what is not a number is null. Class names are values, never columns.

    They are given as JSON text: rows of Python values would be copied and checked again for every part of a chart.
    """
    text = frame.to_json(orient="records", double_precision=15)  # in full: it is rounded once, where it is written
    return alt.InlineData(values=text, format=alt.JsonDataFormat(type="json"))


def with_tooltips(
    frame: pd.DataFrame, texts: Mapping[str, Iterable[str]], column: str = "tip"
) -> tuple[pd.DataFrame, Look]:
    """The rows with texts by title, and the encodings that show them under the pointer and to screen readers.

    Numbers come as text from `classwise.core.format`, so that a chart agrees with tables and sentences. A page shows
    texts of two or more titles, of marks with ``aria=True``.
    column: what the new columns begin with, where marks of the same rows have different texts.
    """
    columns = {f"{column}_{place}": list(own) for place, own in enumerate(texts.values())}
    label = ["; ".join(map(": ".join, zip(texts, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    tooltip = [alt.Tooltip(f"{name}:N", title=title) for name, title in zip(columns, texts, strict=True)]
    shown = {"tooltip": tooltip, "description": alt.Description(f"{column}:N")}
    return frame.assign(**columns, **{column: label}), shown


def from_to(
    frame: pd.DataFrame, by: Sequence[str], columns: Mapping[str, Callable[[float], str]]
) -> dict[str, list[str]]:
    """For the tooltip of a line, the same in all its rows: where each of the columns begins and ends.

    by: columns that distinguish the lines. columns: how to write their values; the first is the one along the axis.
    """
    names = list(columns)
    known = frame[names].where(frame[names].notna().all(axis=1))
    lines = frame[list(by)].join(known).sort_values(names[0], kind="stable").groupby(list(by), sort=False)
    first, last = (lines[names].transform(end).reindex(frame.index) for end in ("first", "last"))
    return {
        name: [f"from {write(a)} to {write(b)}" for a, b in zip(first[name], last[name], strict=True)]
        for name, write in columns.items()
    }


def run_scale(runs: Sequence[str], values: Sequence[Any] = PALETTE) -> alt.Scale:
    """A colour, shape or dash for each run, in order; they repeat from the ninth run on."""
    return alt.Scale(domain=list(runs), range=list(itertools.islice(itertools.cycle(values), len(runs))))


def class_colour(number: int) -> str:
    """The colour of a class by its number, the same in every figure and on the page; they repeat from the ninth on."""
    return PALETTE[number % len(PALETTE)]


def run_legend(runs: Sequence[str], offset: float = 8) -> alt.Legend | None:
    """The legend of several runs, above the plot and no wider than a column; none for one run."""
    if len(runs) < 2:
        return None
    columns = max(1, min(len(runs), _LEGEND_LETTERS // (max(map(len, runs)) + 4)))
    return alt.Legend(orient="top", title=None, columns=columns, columnPadding=12, offset=offset, symbolOpacity=1)


def side_by_side(charts: Mapping[str, Chart], columns: int = 2) -> Chart:
    """A panel for each run, under its name; colour scales are shared, so that the panels can be compared."""
    if not charts:
        raise UserError("there is nothing to draw: give at least one run.")
    named = [chart.properties(title=name) for name, chart in charts.items()]
    return named[0] if len(named) == 1 else alt.concat(*named, columns=columns).resolve_scale(color="shared")


def under_name(chart: Chart, runs: Sequence[str]) -> Chart:
    """A chart of all runs; of one alone, which has no legend, its name is the title."""
    return chart.properties(title=runs[0]) if len(runs) == 1 else chart


def label_angle(names: Sequence[str]) -> float:
    """Of the labels below a matrix: horizontal where they have one or two letters, else vertical."""
    return 0 if max(map(len, names), default=0) <= _SHORT else -90


def ordered(names: Sequence[str], order: Sequence[str] | None) -> list[str]:
    """The names in the given order, those it leaves out at the end."""
    check_known("class", names, *(order or ()))
    return list(dict.fromkeys((*(order or ()), *names)))


# ---- files -------------------------------------------------------------------------------------------------


def save(
    chart: Chart,
    path: str | Path,
    width: Literal["column", "page", "slide"] | float | None = None,
) -> Path:
    """Write a chart as PDF, SVG, PNG, HTML or JSON, by the file's ending; `width` in points, or a usual one by name.

    With a width the plots shrink or grow until the whole, labels and legends included, is as wide as asked; letters
    keep their size. Plots that are square stay square. A PNG has four pixels to a point.
    """
    import vl_convert

    path = Path(path)
    makers: dict[str, Callable[[dict[str, Any], str], bytes]] = {
        ".pdf": lambda _, svg: vl_convert.svg_to_pdf(svg),
        ".svg": lambda _, svg: svg.encode(),
        ".png": lambda _, svg: vl_convert.svg_to_png(svg, scale=_SCALE),
        ".html": lambda specification, _: vl_convert.vegalite_to_html(specification, bundle=True).encode(),
        ".json": lambda specification, _: json.dumps(specification, indent=1).encode(),
    }
    if path.suffix.lower() not in makers:
        raise UserError(f"cannot write a figure as {path.suffix or path.name!r}; use one of {', '.join(makers)}.")
    content = makers[path.suffix.lower()](*fitted(visible(styled(chart).to_dict(validate=False)), _points(width)))
    try:
        with atomic_write(path) as handle:
            handle.write(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}. Choose another place.") from error
    return path


def drawing(chart: Chart) -> str:
    """A chart as SVG."""
    return fitted(visible(styled(chart).to_dict(validate=False)), None)[1]


def _points(width: str | float | None) -> float | None:
    if isinstance(width, str):
        return lookup("width", width, WIDTHS)
    if width is not None and not width > 0:
        raise UserError(f"width is a number of points, above 0; got {width:g}.")
    return width
