"""Results that notebooks show as HTML and that draw their own charts.

What results look like is known by `classwise.show`, which stands above them; it is imported when somebody first looks.
"""

from __future__ import annotations

import importlib
from typing import Any

_SHOWN_BY = "classwise.show.notebook"


class Displayed:
    """A result that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(importlib.import_module(_SHOWN_BY).html(self))


class Charted(Displayed):
    """A result that has charts as well."""

    def chart(self, name: str | None = None, **options: Any) -> Any:
        """A figure, an Altair chart: by default the one that shows this result best; see docs/figures.md."""
        return importlib.import_module(_SHOWN_BY).chart(self, name, **options)
