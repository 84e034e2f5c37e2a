"""Class-wise variance of confidence of each defence: how peaked its predicted distributions are.

Tian et al. (KDD 2021), Figure 3a: defences differ in how smooth their outputs are, most of all on the vulnerable
classes, and smooth outputs weaken attacks on the cross entropy. The numbers are the metric cvc, with Student's t
intervals of single classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from classwise.core.records import Records
from classwise.metrics import cvc
from classwise.results.audit_result import Audit
from classwise.show.figures.forest import MOST, dots
from classwise.show.figures.style import Chart, under_name


def draw(
    runs: Mapping[str, Records], confidence: float = 0.95, most: int = MOST, order: Sequence[str] | None = None
) -> Chart:
    """runs: the records of one attack, with probabilities, for each run by name; see forest for `most` and `order`."""
    frame = pd.concat(cvc.compute(rows, confidence).to_frame().assign(run=name) for name, rows in runs.items())
    return dots(frame, "variance of confidence (CVC)", domain=None, percent=False, most=most, order=order)


def from_runs(
    audits: Mapping[str, Audit], attack: str | None = None, most: int = MOST, order: tuple[str, ...] | None = None
) -> Chart:
    """All audits in one plot, on the rows of one attack, or of clean; by default the headline's."""
    chart = draw({name: audit.rows(attack) for name, audit in audits.items()}, most=most, order=order)
    return under_name(chart, list(audits))
