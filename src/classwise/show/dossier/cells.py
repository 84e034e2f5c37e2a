"""Numbers of a dossier as its page shows them: each with the place in dossier.json that it is read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from classwise.core.format import fixed, interval, percent, points

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Cell:
    """A number as text, how it was written, and the paths of its values in dossier.json."""

    text: str
    form: str
    paths: str


class Cells:
    """Cells of one dossier."""

    def __init__(self, dossier: Mapping[str, Any]) -> None:
        self.dossier = dossier

    def value(self, *path: str | int) -> Any:
        found: Any = self.dossier
        for key in path:
            found = found[key]
        return found

    def percent(self, *path: str | int) -> Cell:
        """A share: 18.3%."""
        return self._cell("percent", percent(self.value(*path)), path)

    def fixed(self, *path: str | int) -> Cell:
        """A number with three decimals."""
        return self._cell("fixed", fixed(self.value(*path), 3), path)

    def points(self, *path: str | int) -> Cell:
        """A change in percentage points: −12.5."""
        return self._cell("points", points(self.value(*path)), path)

    def count(self, *path: str | int) -> Cell:
        """A number of images."""
        return self._cell("count", f"{self.value(*path):,}", path)

    def interval(self, low: str, high: str, *path: str | int) -> Cell:
        """An interval of a share: 4.9–19.2%."""
        ends = (*path, low), (*path, high)
        return self._cell("interval", interval(*(self.value(*end) for end in ends)), *ends)

    def _cell(self, form: str, text: str, *paths: Path) -> Cell:
        return Cell(text, form, json.dumps(paths, ensure_ascii=False))
