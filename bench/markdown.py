"""The few pieces of Markdown that sections are made of, and the ways numbers are written in them."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 120


def paragraph(*sentences: str) -> str:
    """Sentences as wrapped text."""
    return textwrap.fill(" ".join(sentences), _WIDTH, break_long_words=False, break_on_hyphens=False)


def bullets(*items: str) -> str:
    """A list, each item wrapped."""
    return "\n".join(
        textwrap.fill(f"- {item}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for item in items
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """A table whose source reads as one; the first `text_columns` columns are text, the others numbers."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]
    rule = ["-" * width if column < text_columns else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    aligned = [
        [f"{cell:{'<' if column < text_columns else '>'}{widths[column]}}" for column, cell in enumerate(row)]
        for row in cells
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (aligned[0], rule, *aligned[1:]))


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}%"


def median_and_range(values: Sequence[float], digits: int = 2) -> tuple[str, str]:
    """The median, and the smallest and largest value."""
    return f"{statistics.median(values):.{digits}f}", f"{min(values):.{digits}f}–{max(values):.{digits}f}"
