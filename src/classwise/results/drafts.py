"""Which audits are comparable: the same images of the same data, the same threat, the same attacks and settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from classwise.core.errors import UserError
from classwise.core.format import listed, radius
from classwise.core.records import CLEAN, WORST_CASE, Records, digest
from classwise.results import comparable
from classwise.results.audit_result import Audit
from classwise.results.submissions import Submission


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A submission with the rows that decide, by index, before it is ranked."""

    submission: Submission
    attack: str
    rows: Records
    conditions: Mapping[tuple[str, str], Any]

    @classmethod
    def of(cls, submission: Submission, attack: str) -> Draft:
        rows = submission.audit.rows(attack)
        rows = rows.take(np.argsort(rows.index, kind="stable"))
        return cls(
            submission=submission, attack=attack, rows=rows, conditions=comparable.conditions(submission.audit, attack)
        )

    @property
    def audit(self) -> Audit:
        return self.submission.audit

    @property
    def data(self) -> str:
        return str(self.audit.config.get("data", {}).get("name", "data"))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The attacks as they were asked for, suites by their names."""
        if self.attack not in (WORST_CASE, self.audit.headline):
            return (self.attack,)
        return tuple(self.audit.config.get("command", {}).get("attack") or self.audit.attacks) or (CLEAN,)

    @property
    def threat(self) -> str:
        """The norm and the radius; clean images are under none."""
        meta = self.rows.meta
        return "no attack" if self.attack == CLEAN else f"{meta.norm} {radius(meta.eps)}"

    @property
    def title(self) -> str:
        return f"{self.data}, {self.threat}, {' + '.join(self.kinds)}, {len(self.rows):,} images"

    def key(self, images: bool) -> str:
        """The same for all that may be ranked together."""
        settings = sorted((*key, str(value)) for key, value in self.conditions.items())
        mark = str(self.audit.config.get("data", {}).get("fingerprint", ""))[:16]  # older runs have no more digits
        seen = [mark, digest(self.rows.index), digest(self.rows.label)] if images else []
        clean = self.attack == CLEAN
        return json.dumps([self.data, list(self.rows.class_names), clean, settings, seen])


def on_common_images(group: list[Draft], notes: list[str]) -> list[Draft]:
    """The drafts cut to the images that all of them have, with the same label."""
    shared = group[0].rows.frame[["index", "label"]]
    for one in group[1:]:
        shared = shared.merge(one.rows.frame[["index", "label"]], on=["index", "label"])
    if shared.empty:
        names = listed([one.submission.name for one in group])
        raise UserError(f"{names} share no image, so there is nothing to rank them on; leave --common out.")
    cut = [
        dataclasses.replace(one, rows=one.rows.take(np.flatnonzero(np.isin(one.rows.index, shared["index"]))))
        for one in group
    ]
    if any(len(one.rows) < len(before.rows) for one, before in zip(cut, group, strict=True)):
        most = max(len(one.rows) for one in group)
        notes.append(f"{cut[0].title}: of up to {most:,} images these are the ones that all models saw.")
    return cut


def titles(groups: Sequence[Sequence[Draft]]) -> list[str]:
    """A title for each group; where two would be the same, with what differs from the first."""
    first: dict[str, Draft] = {}
    found = []
    for one, *_ in groups:
        base = first.setdefault(one.title, one)
        differing = comparable.differing(base.conditions, one.conditions) or ["other images"]
        found.append(one.title if base is one else f"{one.title} ({listed(differing, 3)})")
    return found


def same_model(group: Sequence[Draft]) -> Iterator[str]:
    """A note for each model that is in a group more than once."""
    names: dict[str, list[str]] = {}
    for one in group:
        if mark := str(one.audit.config.get("model", {}).get("fingerprint", ""))[:16]:
            names.setdefault(mark, []).append(one.submission.name)
    yield from (
        f"{listed(own)} are audits of one model, which takes a rank for each." for own in names.values() if len(own) > 1
    )
