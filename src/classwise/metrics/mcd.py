"""Maximum class-wise discrepancy: best minus worst class accuracy.

MCD = max_c a_c − min_c a_c (Tian et al., KDD 2021, Definition 4.2) over the classes that have examples, as a fraction;
the paper prints it in percent.
"""

from __future__ import annotations

import numpy as np

from classwise.metrics import accuracy
from classwise.records import Records


def compute(records: Records) -> float:
    return float(np.ptp(accuracy.seen(records)))
