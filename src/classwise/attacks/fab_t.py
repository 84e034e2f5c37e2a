"""FAB-T, the targeted form of FAB (Croce and Hein, ICML 2020), as AutoAttack runs it: one class at a time.

    f = z_t − z_y        instead of the class whose plane is nearest

with t in turn the second, third, … highest logit of the clean image. One gradient per iteration however many classes
there are, and planes that seem far at first get their chance. Any misclassified point counts, not only one of class t.
Departures: those of fab; and all targets are tried from x before any is tried again from a random start.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from classwise.attacks.apgd_t import ranked_target
from classwise.attacks.attack import Model, Rows, value_and_gradient
from classwise.attacks.fab import Boundary, Plane, difference
from classwise.core.spec import Count
from classwise.core.threat import Ball

PAPERS = ("croce2020fab", "croce2020autoattack")


@dataclass(frozen=True)
class FabT(Boundary):
    """Fields: those of fab; targets; starts for each target, the first from x and the others random."""

    targets: Count = 9
    per_target: Count = 1

    @property
    def restarts(self) -> int:
        return self.targets * self.per_target

    def for_classes(self, num_classes: int) -> FabT:
        """No more targets than there are other classes."""
        return dataclasses.replace(self, targets=min(self.targets, max(num_classes - 1, 1)))

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        target = ranked_target(model, rows, self.targets)
        rows = self.started(rows, ball, rows["restart"] // self.targets)
        return {**rows, "target": target, "queries": rows["queries"] + 1}

    def linearise(self, model: Model, rows: Rows, ball: Ball) -> Plane:
        y, target = rows["y"], rows["target"]
        z, w = value_and_gradient(model, rows["x_adv"], lambda z: difference(z, y, target))
        return Plane(z, difference(z, y, target), w, 1)
