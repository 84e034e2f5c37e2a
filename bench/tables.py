"""Markdown tables, and the few ways numbers are written in them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, padded so that its source reads as one; the first column is text, the others are numbers."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]
    rule = ["-" * width if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    aligned = [
        [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
        for row in cells
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (aligned[0], rule, *aligned[1:]))


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}%"


def median_and_range(values: Sequence[float], digits: int = 2) -> tuple[str, str]:
    """The median, and the smallest and largest value."""
    return f"{statistics.median(values):.{digits}f}", f"{min(values):.{digits}f}–{max(values):.{digits}f}"
