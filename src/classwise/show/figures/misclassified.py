"""Misclassified and homing confusion: how many images of each class are misclassified as which, and which return.

Tian et al. (KDD 2021), Figure 4a: the counts of the confusion without its diagonal. Figure 4b, beside it where it is
given: of the images of class i misclassified as j those that are correct once j is left out of the training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.results.audit_result import Audit
from classwise.show.figures.confusion import By, arrange, matrix, panels
from classwise.show.figures.style import Chart
from classwise.stats.intervals import Array


def draw(
    records: Records, homing: Array | None = None, order: Sequence[str] | None = None, by: By | None = None
) -> Chart:
    """homing: counts of true class by predicted class, in class order. See confusion for `order` and `by`."""
    names, blocks = records.class_names, arrange(records, order, by)
    broken = matrix(confusion.compute(records), names, blocks, shares=False)
    if homing is None:
        return broken
    if np.shape(homing) != (len(names), len(names)):
        raise UserError(f"homing has shape {np.shape(homing)}, expected ({len(names)}, {len(names)}): a row per class.")
    home = matrix(np.asarray(homing), names, blocks, shares=False)
    both = broken.properties(title="misclassified"), home.properties(title="homing")
    return alt.hconcat(*both).resolve_scale(color="shared")


def from_runs(
    audits: Mapping[str, Audit],
    attack: str | None = None,
    order: tuple[str, ...] | None = None,
    by: By | None = None,
) -> Chart:
    """A panel for each audit."""
    return panels(audits, attack, order, by, shares=False)
