"""Robustness disparity index: best minus worst class robustness.

RDI = max_c r_c − min_c r_c over the classes that have examples (GF-Score: Shah, Visavadiya and Padala 2026, arXiv
2604.12757). The paper's r_c is a certified score of the class; of class accuracies, as here, it is the same number as
`mcd` and has the same interval.
"""

from __future__ import annotations

from classwise.core.records import Records
from classwise.metrics import mcd
from classwise.metrics.metric import Shown

PAPERS = ("shah2026",)
SHOWN = Shown(title="RDI (%)", where=("gate",), unit="points", estimate=mcd.estimate, best="lowest")

of = mcd.of


def compute(records: Records) -> float:
    return mcd.compute(records)
