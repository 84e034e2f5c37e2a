"""Figures of an exact width: plots are scaled, letters are not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from classwise.core.errors import UserError

#: Widths in points, as in the styles of common venues: a column of two, a whole page of text, a slide.
WIDTHS = {"column": 234.0, "page": 487.0, "slide": 720.0}

_LEAST = 0.12  # of its own width, to which a plot may shrink
_FLATTEST = 0.1  # share of the width that the plots have at least, when the next factor is chosen
_TRIES = 12  # drawings until the width is right; most figures need two
_CLOSE = 0.01  # share of the width by which the last scaling may shrink or stretch the letters


def fitted(specification: dict[str, Any], width: float | None) -> tuple[dict[str, Any], str]:
    """The chart with its plots scaled until the whole is `width` wide, and its drawing.

    What axes and legends need is known only once they are drawn, so the factor is found by the secant method, kept
    between the largest factor known to be too small and the smallest known to be too large: while a title is wider
    than the plots below it, the width says nothing of the slope.
    """
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(specification)
    if width is None:
        return specification, drawn
    scaled, factor, measured = specification, 1.0, _width(drawn)
    before, was = 0.0, max(measured - (_plots(specification) or measured), 0.0)  # what is not plots stays
    too_small, too_large = 0.0, math.inf
    for _ in range(_TRIES):
        if abs(measured - width) <= _CLOSE * width:
            return scaled, _exactly(drawn, width)
        too_small, too_large = (factor, too_large) if measured < width else (too_small, factor)
        slope = max((measured - was) / (factor - before), _FLATTEST * measured / factor)
        before, was, factor = factor, measured, max(factor + (width - measured) / slope, _LEAST)
        if factor == before:
            break
        if not too_small < factor < too_large:
            factor = (too_small + too_large) / 2
        scaled = _scaled(specification, factor)
        drawn = vl_convert.vegalite_to_svg(scaled)
        measured = _width(drawn)
    enough = next((f"{name} ({points:g})" for name, points in WIDTHS.items() if points >= measured), f"{measured:g}")
    raise UserError(
        f"{width:g} points are too narrow for this figure, which needs {measured:g}. Use a larger width, such as "
        f"{enough}, or draw fewer runs."
    )


def _scaled(view: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A chart whose plots are `factor` times as wide; a square one grows both ways."""
    scaled = dict(view)
    square = view.get("width") is not None and view.get("width") == view.get("height")
    for key in ("width", "height") if square else ("width",):
        if key in view:
            scaled[key] = _times(view[key], factor)
    for key in ("hconcat", "vconcat", "concat", "layer"):
        if key in view:
            scaled[key] = [_scaled(part, factor) for part in view[key]]
    if "spec" in view:
        scaled["spec"] = _scaled(view["spec"], factor)
    if "config" in view:  # the width of plots that do not set theirs
        own = view["config"]["view"]
        sizes = {"continuousWidth": own["continuousWidth"] * factor, "discreteWidth": {"step": 20 * factor}}
        scaled["config"] = {**view["config"], "view": {**own, **sizes}}
    return scaled


def _plots(view: Mapping[str, Any]) -> float:
    """The width of a chart's plots side by side; 0 where the data decide how many there are, or how wide."""
    if any(key in view for key in ("spec", "facet")):
        return 0.0
    if "layer" in view and "width" not in view:
        return max(map(_plots, view["layer"]), default=0.0)
    if "hconcat" in view or "concat" in view:
        parts = view.get("hconcat") or view["concat"]
        widths = [_plots(part) for part in parts[: view.get("columns") or len(parts)]]
        return sum(widths) if all(widths) else 0.0
    if "vconcat" in view:
        return max(map(_plots, view["vconcat"]), default=0.0)
    width = view.get("width", 0.0)
    return float(width) if isinstance(width, int | float) else 0.0


def _times(size: Any, factor: float) -> Any:
    return {**size, "step": size["step"] * factor} if isinstance(size, Mapping) else size * factor


_SIZE = re.compile(r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"')


def _width(svg: str) -> float:
    match = _SIZE.search(svg)
    assert match is not None, "the renderer writes the size into the first tag"
    return float(match[2])


def _exactly(svg: str, width: float) -> str:
    """The drawing scaled by the last fraction of a percent."""

    def resize(match: re.Match[str]) -> str:
        return f'{match[1]} width="{width:g}" height="{float(match[3]) * width / float(match[2]):.3f}"'

    return _SIZE.sub(resize, svg, count=1)
