"""Over how many intervals of robustness are the classes of a data set spread? (Tian et al. 2020, Figure 6.)

Intervals are open on the left and closed on the right, (10%, 20%], except the first, which contains 0. With few images
per class, sampling noise spreads the classes too: the table also has the variance without it (`metrics.widening`), and
the verdict is based on an interval for the gap between the best and the worst true class accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import percent
from classwise.core.records import Records
from classwise.metrics import accuracy, average, cv, widening, worst
from classwise.show.figures import intervals as figure
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared.together import in_percent, smallest
from classwise.studies.shared.under_attack import UnderAttack
from classwise.studies.shared.verdicts import either, exceeds, images


@dataclass(frozen=True, kw_only=True)
class Intervals(UnderAttack):
    """Number of classes in each interval of robustness.

    bins: the number of intervals from 0 to 100%.
    """

    bins: int = 10

    def jobs(self) -> list[StudyJob]:
        if self.bins < 2:
            raise UserError(f"--bins {self.bins}: cut 0 to 100% into two intervals or more, such as 10.")
        return super().jobs()

    def result(self, done: Done) -> StudyResult:
        runs = {name: audit.rows() for name, audit in self.audits(done).items()}
        ends = 100 * np.arange(self.bins + 1) / self.bins
        counts = {name: figure.count(accuracy.seen(rows), self.bins) for name, rows in runs.items()}
        return StudyResult(
            {
                "models": pd.DataFrame([self._row(name, rows) for name, rows in runs.items()]),
                "classes": pd.DataFrame({"above (%)": ends[:-1], "up to (%)": ends[1:], **counts}),
            },
            figures={"intervals": figure.draw(runs, 1 / self.bins)},
            claims=[self._claim(name, rows) for name, rows in runs.items()],
        )

    def _row(self, name: str, rows: Records) -> dict[str, str | float]:
        mean, lowest, gap = average.estimate(rows), worst.compute(rows), widening.gap(rows)
        return {
            "model": name,
            "classes": len(accuracy.seen(rows)),
            "n": mean.support,
            **in_percent("average", mean, ""),
            "worst class": lowest.name,
            "worst (%)": 100 * lowest.value,
            **in_percent("MCD", gap),
            "CV (%²)": cv.compute(rows),
            "CV without sampling noise (%²)": widening.unbiased(rows),
            "intervals": sum(number > 0 for number in figure.count(accuracy.seen(rows), self.bins)),
        }

    def _claim(self, name: str, rows: Records) -> Claim:
        """Two classes that differ by more than the width of an interval are not in the same one."""
        gap, each = widening.gap(rows), accuracy.compute(rows, interval="exact", simultaneous=True)
        low, high = float(np.nanmin(each.low)), float(np.nanmax(each.high))
        own = int(np.clip(np.ceil(self.bins * high) - 1, 0, self.bins - 1))  # the interval of the highest upper bound
        sample = images(smallest(rows))
        room = low - own / self.bins if own else 1.0
        ruling = either(
            exceeds(gap.low, gap.high, 1 / self.bins, test="exact bounds of best and worst class", sample=sample),
            exceeds(room, 1.0, test="simultaneous exact bounds of all classes", sample=sample),
        )
        text = f"The classes of {name} spread over several intervals of robustness."
        found = f"gap {percent(gap.value)}, 95% CI {percent(gap.low)} to {percent(gap.high)}"
        numbers = f"{found}; intervals of {percent(1 / self.bins)}"
        return Claim("tian2020:figure6", text, ruling, numbers)
