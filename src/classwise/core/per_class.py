"""One number per class: what a metric that looks at every class returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Array


@dataclass(frozen=True, kw_only=True)
class PerClass:
    """One number per class, with its interval and the number of examples behind it.

    A class with no example is NaN with support 0; it is never dropped.
    """

    values: Array
    support: Array
    low: Array
    high: Array
    class_names: tuple[str, ...]

    @property
    def worst(self) -> int:
        """The class with the smallest value (the first, if several tie)."""
        return int(np.nanargmin(self._supported()))

    @property
    def best(self) -> int:
        """The class with the largest value (the first, if several tie)."""
        return int(np.nanargmax(self._supported()))

    def to_frame(self) -> pd.DataFrame:
        columns = {"class": self.class_names, "n": self.support, "value": self.values}
        return pd.DataFrame({**columns, "low": self.low, "high": self.high})

    def _supported(self) -> Array:
        if not np.isfinite(self.values).any():
            raise UserError("no class has an example: there is nothing to compare. Select at least one example.")
        return self.values
