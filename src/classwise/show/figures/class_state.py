"""The class-wise state of a training method over the epochs: weights, margins (radius / ε), β, temperatures.

The state of class-wise methods as history.csv keeps it: CSL's, FRL's and WAT's weights, the margins and β of CFA, DAFA
and FRL-RWRM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from classwise.core.errors import UserError, unknown
from classwise.show.figures import epochs
from classwise.show.figures.lines import Domain, draw_lines
from classwise.show.figures.style import Chart, side_by_side

_MEASURED = {"clean", "robust"}  # results, not state
_USUAL = ("weight", "margin", "beta", "temperature")  # fields of methods, before other state


def draw(
    history: pd.DataFrame, state: str, highlight: Sequence[str] | None = None, domain: Domain | None = None
) -> Chart:
    """history: the table in history.csv; state: what to draw, of which there are columns state:CLASS."""
    points = epochs.by_class(history, state)
    if points.empty:
        raise unknown("class-wise state of this history", state, states(history))
    return draw_lines(
        points,
        highlight,
        epochs.epoch_axis(history),
        y="margin (radius / ε)" if state == "margin" else state,
        domain=domain or _domain([points]),
        percent=False,
    )


def states(history: pd.DataFrame) -> list[str]:
    """Everything the history has one number of for each class, accuracies aside."""
    found = dict.fromkeys(str(column).partition(":")[0] for column in history if ":" in str(column))
    return [name for name in found if name not in _MEASURED]


def moving(history: pd.DataFrame) -> list[str]:
    """The state that differs between classes or epochs; of it the weights, margins, β and temperatures if there are."""
    different = [name for name in states(history) if epochs.by_class(history, name)["value"].nunique() > 1]
    return [name for name in _USUAL if name in different] or different


def _domain(tables: Sequence[pd.DataFrame]) -> Domain:
    values = pd.concat(tables)["value"]
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def from_history(
    histories: Mapping[str, pd.DataFrame],
    state: tuple[str, ...] | None = None,
    highlight: tuple[str, ...] | None = None,
) -> Chart:
    """A row for each kind of state, and in it a panel for each training; by default only where it changes."""
    wanted = state or tuple(dict.fromkeys(name for history in histories.values() for name in moving(history)))
    if not wanted:
        known = dict.fromkeys(name for history in histories.values() for name in states(history))
        raise UserError(
            "no class-wise state changed in these trainings: their methods treat all classes in the same way. "
            f"To draw it anyway, give state; there is {', '.join(known) or 'none'}."
        )
    rows = []
    for name in wanted:
        having = {run: history for run, history in histories.items() if name in (states if state else moving)(history)}
        if not having:
            raise unknown("class-wise state", name, {n for history in histories.values() for n in states(history)})
        domain = _domain([epochs.by_class(history, name) for history in having.values()])
        rows.append(side_by_side({run: draw(history, name, highlight, domain) for run, history in having.items()}))
    return rows[0] if len(rows) == 1 else alt.vconcat(*rows)
