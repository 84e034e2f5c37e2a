"""Photos on other backgrounds at inference: which backgrounds, behind which masks, and the audits on each.

Each image is audited as it is and on other backgrounds, and only images whose mask is usable count. White helps

    as white         if it raises the class more than other colours do
    as background    if it does so behind the object's own mask more than behind one that is independent of the object:
                     another image's of the class (shuffled), or a random shape of the same area (random)

and not by making the model predict the class more often, if images of other classes are not misclassified as it more
often.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from classwise.core.errors import index_of
from classwise.core.records import CLEAN, Records
from classwise.metrics import worst
from classwise.results.audit_result import Audit
from classwise.stats.intervals import Array

Kind: TypeAlias = Literal["natural", "adversarial"]
#: The rows of one model by the background, and by whether they are attacked; the original first.
Views: TypeAlias = "Mapping[str, Mapping[Kind, Records]]"

ORIGINAL = "original"
KINDS: tuple[Kind, ...] = ("natural", "adversarial")
_MASKS = " masks"


@dataclass(frozen=True)
class View:
    """A background: its colour, and which masks it is put behind."""

    colour: str
    masks: Literal["own", "shuffled", "random"] = "own"

    @property
    def name(self) -> str:
        return self.colour if self.masks == "own" else f"{self.colour}, {self.masks}{_MASKS}"

    @property
    def job(self) -> str:
        plain = re.sub(r"[^A-Za-z0-9]+", "", self.colour)
        return plain if self.masks == "own" else f"{plain}-{self.masks}"

    def data(self, of: str, folder: str, seed: int) -> str:
        """The data set of these images, with the masks in a folder of `make_masks`."""
        nested = of.replace(",", ";")
        return f"replaced:of={nested},masks={folder}/{self.masks}.npz,colour={self.colour},seed={seed}"


def views(colours: Sequence[str]) -> list[View]:
    """The colours behind the objects' own masks, and the first of them behind the control masks."""
    return [*map(View, colours), View(colours[0], "shuffled"), View(colours[0], "random")]


def chosen_class(audit: Audit, name: str | None) -> str:
    """The class as the data set calls it; the weakest of the audit where none is named."""
    names = audit.records.class_names
    return worst.compute(audit.rows()).name if name is None else names[index_of(name, names, "class")]


def read_views(audits: Mapping[str, Audit]) -> Views:
    """The rows of one model's audits, only of images that have another background."""
    masked = next(audit for name, audit in audits.items() if name != ORIGINAL).rows(CLEAN).index
    return {
        name: {"natural": _only(audit.rows(CLEAN), masked), "adversarial": _only(audit.rows(), masked)}
        for name, audit in audits.items()
    }


def behind_own_masks(own: Views) -> list[str]:
    """The backgrounds behind the objects' own masks, the one in question first."""
    return [view for view in own if view != ORIGINAL and not view.endswith(_MASKS)]


def _only(rows: Records, index: Array) -> Records:
    return rows.take(np.flatnonzero(np.isin(rows.index, index)))
