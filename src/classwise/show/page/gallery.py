"""The gallery of the confusion: for each cell a few images, clean, attacked, and their difference amplified.

They come from what ``--save-adversarial`` kept. All runs share one budget of bytes: first one image for every cell, the
largest cells first, then a second one, and so on; within a cell the most confident errors first.
"""

from __future__ import annotations

import base64
import functools
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from classwise.core import adversarial_examples
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, WORST_CASE, Array
from classwise.core.run_folder import AuditFolder
from classwise.results.audit_result import Audit

_MOST = 6  # images of one cell
_LARGEST = 96  # pixels a side, beyond which an image is scaled down

_NOT_KEPT = "This audit kept no images. Audit again with --save-adversarial to see them here."
_NOT_CLEAN = "This audit kept no clean images beside the attacked ones. Audit again to see both here."
_NO_ROOM = (
    "No image of these was kept: they were misclassified without the attack already, or the page ran out of room."
)
_ON_CLEAN = "These are errors on clean images: no attack changed them."

Cell = tuple[int, int]


@dataclass
class Pool:
    """PNG images, each kept once, as base64; `left` is what remains of the budget, in bytes."""

    left: int
    images: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def add(self, image: Array) -> int:
        """The place of an image (H×W×C, uint8) in the pool."""
        text = base64.b64encode(png(image)).decode()
        if text not in self._places:
            self._places[text] = len(self.images)
            self.images.append(text)
            self.left -= len(text)
        return self._places[text]


@dataclass(frozen=True, order=True, kw_only=True)
class _Candidate:
    """One kept example in a cell of a view, ordered as the budget is spent."""

    secondary: bool  # not of the headline, which comes first
    rank: int  # among those of its cell, the most confident first
    size: int  # minus the number of errors in the cell
    view: str
    cell: Cell
    index: int
    confidence: float
    attack: str  # whose image it is


@dataclass(frozen=True)
class Kept:
    """The adversarial images of one audit, by attack; `why` is the reason, for each view, why it has none.

    failed: the reasons where images were kept but cannot be read.
    """

    audit: Audit
    points: Mapping[str, dict[str, Array]]
    why: Mapping[str, str]
    failed: tuple[str, ...] = ()

    @classmethod
    def of(cls, audit: Audit) -> Kept:
        found, missing, failed = {}, {}, []
        any_kept = audit.folder is not None and AuditFolder(audit.folder).adversarial.is_dir()
        for attack in audit.attacks:
            try:
                own = audit.adversarial(attack)
            except UserError as error:
                missing[attack] = f"The images of {attack} cannot be shown: {error}" if any_kept else _NOT_KEPT
                failed += [missing[attack]] if any_kept else []
                continue
            if "clean" in own:
                found[attack] = own
            else:
                missing[attack] = _NOT_CLEAN
        whole = _NO_ROOM if found else next(iter(missing.values()), _NO_ROOM)
        why = {**dict.fromkeys(audit.attacks, _NO_ROOM), **missing, CLEAN: _ON_CLEAN, WORST_CASE: whole}
        return cls(audit, found, why, tuple(failed))

    def candidates(self) -> Iterator[_Candidate]:
        """Every kept example that is an error of some view, with its rank in its cell."""
        if not self.points:
            return
        for turn, view in enumerate(dict.fromkeys((self.audit.headline, *self.audit.attacks))):
            yield from self._of_view(view, turn > 0)

    def _of_view(self, view: str, secondary: bool) -> Iterator[_Candidate]:
        rows = self.audit.rows(view)
        wrong = rows.frame[~rows.correct].sort_values("confidence", ascending=False, kind="stable")
        by = wrong["broken_by"] if "broken_by" in wrong else [view] * len(wrong)
        sizes = wrong.groupby(["label", "prediction"]).size().to_dict()
        seen: dict[Cell, int] = defaultdict(int)
        columns = zip(wrong["index"], wrong["label"], wrong["prediction"], wrong["confidence"], by, strict=True)
        for index, label, prediction, confidence, attack in columns:
            source = self.source(attack, int(index))
            cell = (int(label), int(prediction))
            if source is None or seen[cell] >= _MOST:
                continue
            yield _Candidate(
                secondary=secondary,
                rank=seen[cell],
                size=-sizes[cell],
                view=view,
                cell=cell,
                index=int(index),
                confidence=float(confidence),
                attack=source,
            )
            seen[cell] += 1

    @functools.cached_property
    def places(self) -> dict[str, dict[int, int]]:
        """By attack the row of each example that was kept."""
        return {name: {int(i): at for at, i in enumerate(own["index"])} for name, own in self.points.items()}

    def source(self, attack: str, index: int) -> str | None:
        """The attack among whose points the example is: its own, or the same attack at a smaller radius."""
        infos = self.audit.records.meta.attacks
        family = infos[attack].family if attack in infos else None
        smaller = [name for name, info in infos.items() if family is not None and info.family == family]
        return next((name for name in (attack, *smaller) if index in self.places.get(name, ())), None)


def collect(kept: Mapping[str, Kept], pool: Pool) -> dict[str, dict[str, dict[str, Any]]]:
    """By run, view and cell ("i,j") the images to show, which are put into the pool while it has room."""
    shown: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in kept}
    wanted = [(image, name, own) for name, own in kept.items() for image in own.candidates()]
    wanted.sort(key=lambda item: item[0])
    for image, name, own in wanted:
        if pool.left <= 0:
            break
        cells = shown[name].setdefault(image.view, {})
        cells.setdefault(f"{image.cell[0]},{image.cell[1]}", []).append(
            entry(own, pool, image.index, image.cell, image.confidence, image.attack)
        )
    return shown


def entry(kept: Kept, pool: Pool, index: int, cell: Cell, confidence: float, attack: str) -> dict[str, Any] | None:
    """An example that an attack broke, with its images; None where they were not kept."""
    source = kept.source(attack, index)
    if source is None:
        return None
    own, at = kept.points[source], kept.places[source][index]
    clean, exact = (own[key][at].transpose(1, 2, 0) for key in ("clean", "exact"))
    difference, factor = amplified(clean, exact)
    images = [
        pool.add(image)
        for image in (adversarial_examples.rounded(clean), adversarial_examples.rounded(exact), difference)
    ]
    return {
        "true": cell[0],
        "predicted": cell[1],
        "index": index,
        "confidence": confidence,
        "attack": source,
        "factor": factor,
        "images": images,
    }


def amplified(clean: Array, attacked: Array) -> tuple[Array, int | float]:
    """The difference around mid-grey, amplified until it is plain to see, and the factor that takes.

    All but the largest hundredth of what changed lies within black and white: in L2 a few pixels may change far more
    than the others, which would stay grey if those set the factor.
    """
    difference = attacked.astype(np.float64) - clean
    changed = np.abs(difference[difference != 0])
    if not changed.size:
        return adversarial_examples.rounded(np.full_like(difference, 0.5)), 1
    factor = 0.5 / float(np.quantile(changed, 0.99))
    return adversarial_examples.rounded(0.5 + factor * difference), round(factor, 1) if factor < 10 else round(factor)


def png(image: Array) -> bytes:
    """An image (H×W×C with 1 or 3 channels, uint8) as PNG, scaled down if it is large."""
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image[..., :3])
    if max(picture.size) > _LARGEST:
        picture.thumbnail((_LARGEST, _LARGEST))
    made = io.BytesIO()
    picture.save(made, "PNG", optimize=True)
    return made.getvalue()
