"""Auto-PGD on the difference of logits ratio (Croce and Hein, ICML 2020).

f = (max_{j≠y} z_j − z_y) / (z_π1 − z_π3), with the logits in falling order π: shift and scale of the logits do not
change it, so a model cannot hide its gradient behind large logits. The search itself is apgd_ce's. With two classes
there is no z_π3, and f is the margin z_j − z_y.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.attacks.apgd_ce import ApgdCe
from classwise.attacks.attack import Rows
from classwise.core.losses import dlr

PAPERS = ("croce2020autoattack",)


@dataclass(frozen=True)
class ApgdDlr(ApgdCe):
    """Fields of apgd_ce."""

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        return dlr(z, rows["y"])
