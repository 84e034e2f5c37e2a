"""Charts in notebooks without a network: a drawing, and where scripts may run an interactive chart in its place.

Altair's usual renderer fetches Vega from a server. This one writes the drawing (SVG) into the notebook, and with the
first chart of a session Vega, Vega-Lite and Vega-Embed themselves, which the other charts of the notebook use too.
Where no script runs, on GitHub or in a notebook that is not trusted, the drawing stays. With CLASSWISE_CHARTS=static
there are only drawings, a hundredth of the size.
"""

from __future__ import annotations

import base64
import functools
import os
import uuid
from typing import Any

from classwise.core.csv_files import visible

NAME = "classwise"
_SETTING = "CLASSWISE_CHARTS"
_WAITS = 100  # times that a chart looks for the library, ten a second: another cell may hold it

_EXPOSED = "window.vegaEmbed = vegaEmbed;"
_REPLACE = """
(() => {
  const place = document.getElementById("%(place)s"), specification = %(specification)s;
  let tries = 0;
  const draw = () => {
    if (!place) return;
    if (typeof window.vegaEmbed !== "function") { if (tries++ < %(waits)d) setTimeout(draw, 100); return; }
    const chart = document.createElement("div");
    window.vegaEmbed(chart, specification, {renderer: "svg", actions: false})
      .then(() => place.replaceChildren(chart)).catch(console.error);
  };
  draw();
})();
"""


def use() -> None:
    """Let Altair show charts this way, unless another renderer than its usual one was chosen."""
    import altair as alt

    if NAME not in alt.renderers.names():
        alt.renderers.register(NAME, bundle)
    if alt.renderers.active in ("", "default"):
        alt.renderers.enable(NAME)


def bundle(specification: dict[str, Any], **_: Any) -> dict[str, str]:
    """What a notebook keeps of a chart: HTML, and the drawing alone."""
    import vl_convert

    from classwise.show.page.document import as_json

    seen = visible(specification)
    svg = vl_convert.vegalite_to_svg(seen)
    coded = base64.b64encode(svg.encode()).decode()
    place = f"chart-{uuid.uuid4().hex}"
    image = f'<div id="{place}"><img alt="chart" src="data:image/svg+xml;base64,{coded}"></div>'
    if os.environ.get(_SETTING) == "static":
        return {"text/html": image, "image/svg+xml": svg}
    filled = _REPLACE % {"place": place, "specification": as_json(seen), "waits": _WAITS}
    return {"text/html": f"{image}{_library()}<script>{filled}</script>", "image/svg+xml": svg}


@functools.cache
def _once() -> list[str]:
    """The library, for the first chart of a session."""
    import vl_convert

    return [f"<script>{vl_convert.javascript_bundle(_EXPOSED)}</script>"]


def _library() -> str:
    left = _once()
    return left.pop() if left else ""
