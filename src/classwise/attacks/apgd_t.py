"""Auto-PGD towards one wrong class after the other (Croce and Hein, ICML 2020): AutoAttack's APGD-T.

    f_t = (z_t − z_y) / (z_π1 − ½(z_π3 + z_π4)),    t = the strongest, second strongest, … wrong class at x

The search is apgd_ce's, once for each target; the targets are ranked by the logits of the clean image and keep their
rank. Whoever is misclassified is broken, as whatever class. With fewer than four classes f_t is z_t − z_y.

The authors' code takes the classes from the second highest logit on; where the image is classified correctly, and it
attacks no other, those are the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.apgd_ce import Apgd
from classwise.attacks.attack import Model, Rows
from classwise.core.losses import targeted_dlr
from classwise.core.spec import Count
from classwise.core.threat import Ball

PAPERS = ("croce2020autoattack",)


@dataclass(frozen=True)
class ApgdT(Apgd):
    """Fields: number of iterations, ρ, the start, EoT draws (see apgd_ce); targets; starts for each target."""

    targets: Count = 9
    starts: Count = 1

    @property
    def restarts(self) -> int:
        return self.targets * self.starts

    def for_classes(self, num_classes: int) -> ApgdT:
        """No more targets than there are other classes."""
        return dataclasses.replace(self, targets=max(min(self.targets, num_classes - 1), 1))

    def objective(self, z: Tensor, rows: Rows) -> Tensor:
        return targeted_dlr(z, rows["y"], rows["target"])

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        target = ranked_target(model, rows, self.targets)
        rows = super().begin(model, rows, ball)
        return {**rows, "target": target, "queries": rows["queries"] + 1}


def ranked_target(model: Model, rows: Rows, targets: int) -> Tensor:
    """Restart number r's target: the wrong class of rank r mod `targets` by the clean logits, the strongest first."""
    with torch.no_grad():
        z = model(rows["x"])
    strongest_first = z.scatter(1, rows["y"][:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = rows["restart"] % min(targets, z.shape[1] - 1)
    return strongest_first.gather(1, rank[:, None])[:, 0]
