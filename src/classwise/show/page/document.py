"""One self-contained HTML file from a template, scripts and data.

All that a page needs is in the file: its style, its script, its charts, and the data as one block of JSON. A content
security policy names the script by its hash and forbids everything else, so nothing is ever fetched, and nothing in
the data can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from classwise.core.version import __version__

_ASSETS = Path(__file__).parent / "assets"


def render(
    template: str,
    scripts: Sequence[str],
    payload: Any,
    styles: Sequence[str] = (),
    folder: Path = _ASSETS,
    **context: Any,
) -> str:
    """The page as text. scripts, styles: files of assets; every page has page.css. payload: what the scripts read.
    folder: where else templates, scripts and styles may lie."""
    loader = jinja2.FileSystemLoader([folder, _ASSETS])
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    script = '"use strict";\n(() => {\n' + _read(scripts, folder) + "\n})();\n"
    return environment.get_template(template).render(
        **context,
        version=__version__,
        css=Markup(_read(["page.css", *styles], folder)),
        data=Markup(as_json(payload)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _read(files: Sequence[str], folder: Path) -> str:
    paths = (folder / name if (folder / name).is_file() else _ASSETS / name for name in files)
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def as_json(payload: Any) -> str:
    """JSON for use inside a script element: no text in it can end the element or open a comment."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
