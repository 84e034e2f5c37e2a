"""Where a metric of one number is shown and how it is written: a metric's module says so, ``SHOWN = Shown(…)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from classwise.core.errors import UserError
from classwise.core.format import distance, fixed, percent, points
from classwise.core.records import Array, Records

Place = Literal["terminal", "page", "gate"]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """title: the header of its column. where: the terminal's overview, the page's first numbers, requirements.
    unit: a share is written 18.3%, points (a difference of shares) 18.3, a number as it is. caption: what the page says
    under it, by default the title. names: what requirements call it, the first in messages; by default its own name.
    estimate: the metric with its interval, where `compute` gives the value alone. best: which end of it is better.
    """

    title: str
    where: tuple[Place, ...] = ("terminal", "page", "gate")
    unit: Literal["share", "points", "number"] = "number"
    digits: int = 1
    caption: str = ""
    names: tuple[str, ...] = ()
    estimate: Callable[[Records, float], tuple[float, float, float]] | None = None
    best: Literal["highest", "lowest"] = "highest"

    def text(self, value: float) -> str:
        """A value as a table has it."""
        if self.unit == "number":
            return fixed(value, self.digits)
        return percent(value) if self.unit == "share" else distance(value)

    def difference(self, value: float) -> str:
        """A difference of two values: with its sign, of shares in percentage points."""
        return fixed(value, self.digits, signed=True) if self.unit == "number" else points(value)


@dataclass(frozen=True)
class Metric:
    """A metric of one number: its name, the function of the records, and how it is shown.

    of: the same as a function of the accuracies of the classes that have examples, where that is all it needs.
    """

    name: str
    compute: Callable[..., Any]
    shown: Shown
    of: Callable[[Array], float] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What requirements call it."""
        return self.shown.names or (self.name,)

    def estimate(self, records: Records, confidence: float = 0.95) -> tuple[float, float, float]:
        """The value and its interval; without one, the value three times."""
        if self.shown.estimate is not None:
            return self.shown.estimate(records, confidence)
        parameters = inspect.signature(self.compute).parameters
        collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if sum(each.default is each.empty and each.kind not in collected for each in parameters.values()) > 1:
            raise self._not_one_number("compares two runs")
        found = self.compute(records, **({"confidence": confidence} if "confidence" in parameters else {}))
        value, low, high = (getattr(found, end, found) for end in ("value", "low", "high"))
        try:
            return float(value), float(low), float(high)
        except TypeError as error:
            raise self._not_one_number(f"gives a {type(found).__name__}, not one number") from error

    def _not_one_number(self, what: str) -> UserError:
        return UserError(
            f"the metric {self.name} {what}, so it cannot be shown here: name another, or call it in Python."
        )

    def written(self, records: Records) -> str:
        """The value as a table has it."""
        return self.shown.text(self.estimate(records)[0])
