"""AutoAttack (Croce and Hein, ICML 2020): four attacks with nothing to tune, each on the survivors of those before.

standard  apgd_ce, apgd_t, fab_t, square
plus      apgd_ce, apgd_dlr and fab with five restarts, square, apgd_t, fab_t
rand      apgd_ce and apgd_dlr with gradients averaged over `eot` calls, for randomised models

An example is robust if none of them breaks it. It is a suite, not an attack: `members` are the attacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classwise.attacks.apgd_ce import ApgdCe
from classwise.attacks.apgd_dlr import ApgdDlr
from classwise.attacks.apgd_t import ApgdT
from classwise.attacks.attack import Attack, Suite
from classwise.attacks.fab import Fab
from classwise.attacks.fab_t import FabT
from classwise.attacks.square import Square
from classwise.core import spec
from classwise.core.spec import Count

PAPERS = ("croce2020autoattack", "croce2020fab", "andriushchenko2020")


@dataclass(frozen=True)
class Autoattack(Suite):
    """Fields: the version; for "rand", the number of EoT draws."""

    version: Literal["standard", "plus", "rand"] = "standard"
    eot: Count = 20

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def members(self) -> list[Attack]:
        """The attacks of this version, in the order they run."""
        if self.version == "rand":
            return [ApgdCe(eot=self.eot), ApgdDlr(eot=self.eot)]
        if self.version == "plus":
            return [ApgdCe(restarts=5), ApgdDlr(restarts=5), Fab(restarts=5), Square(), ApgdT(), FabT()]
        return [ApgdCe(), ApgdT(), FabT(), Square()]
