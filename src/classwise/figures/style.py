"""How every figure looks, and how it becomes a file: exact sizes of paper columns, colours that the colour-blind and a
grey printer can tell apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt

from classwise.errors import UserError, unknown
from classwise.storage import whole_file

#: Any Altair chart, plain or of several parts; Altair's own types for them do not compose.
Chart: TypeAlias = Any

#: Okabe and Ito's palette (2008), in an order whose neighbours also differ in grey.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442")
#: From nothing to all: one hue whose lightness alone carries the value.
SEQUENTIAL: Literal["blues"] = "blues"
#: Around zero: two hues of equal weight.
DIVERGING: Literal["purpleorange"] = "purpleorange"
#: Widths in points, as in the styles of common venues: a column of two, a whole page of text, a slide.
WIDTHS = {"column": 234.0, "page": 487.0, "slide": 720.0}
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

_SCALE = 4  # pixels of a PNG for each point


def styled(chart: Chart, background: str | None = "white") -> Chart:
    """The chart in the common style. The page passes no background, so that light and dark both work."""
    labels = {
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 9,
        "titleFontSize": 10,
        "titleFontWeight": "normal",
    }
    config: dict[str, Any] = {
        "background": background,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**labels, "grid": False, "domainColor": "#888", "tickColor": "#888"},
        "legend": {**labels, "symbolSize": 60},
        "header": {**labels},
        "title": {"font": FONT, "fontSize": 11, "anchor": "start", "fontWeight": "normal"},
        "range": {"category": list(PALETTE)},
    }
    themed = chart.copy()
    themed.config = alt.Config(**config)
    return themed


def save(
    chart: Chart,
    path: str | Path,
    width: Literal["column", "page", "slide"] | float | None = None,
) -> Path:
    """Write a chart as PDF, SVG, PNG, HTML or JSON, by the file's ending; `width` in points, or a usual one by name."""
    import vl_convert

    path = Path(path)
    specification = _sized(styled(chart).to_dict(), _points(width))
    makers: dict[str, Callable[[], bytes]] = {
        ".pdf": lambda: vl_convert.vegalite_to_pdf(specification),
        ".svg": lambda: vl_convert.vegalite_to_svg(specification).encode(),
        ".png": lambda: vl_convert.vegalite_to_png(specification, scale=_SCALE),
        ".html": lambda: vl_convert.vegalite_to_html(specification, bundle=True).encode(),
        ".json": lambda: json.dumps(specification, indent=1).encode(),
    }
    if path.suffix.lower() not in makers:
        raise UserError(f"cannot write a figure as {path.suffix or path.name!r}; use one of {', '.join(makers)}.")
    content = makers[path.suffix.lower()]()
    try:
        with whole_file(path) as handle:
            handle.write(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}. Choose another place.") from error
    return path


def _points(width: str | float | None) -> float | None:
    if isinstance(width, str):
        if width not in WIDTHS:
            raise unknown("width", width, WIDTHS)
        return WIDTHS[width]
    if width is not None and not width > 0:
        raise UserError(f"width is a number of points, above 0; got {width:g}.")
    return width


def _sized(specification: dict[str, Any], width: float | None) -> dict[str, Any]:
    """A plain chart fitted, labels and all, into the width; charts of several parts keep their own sizes."""
    if width is None or any(key in specification for key in ("hconcat", "vconcat", "concat", "facet")):
        return specification
    return {**specification, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}


def ordered(names: Sequence[str], order: Sequence[str] | None) -> list[str]:
    """The names in the wanted order, those it leaves out at the end."""
    first = [name for name in (order or ()) if name in names]
    return first + [name for name in names if name not in first]
