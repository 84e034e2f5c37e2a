"""A leaderboard of audits: models by their worst class, with intervals of their ranks. Numbers only.

    board = leaderboard.of(submissions.read(["runs/trades", "runs/wat"]))
    board.table()                                       # a row per model
    board.divisions[0].title                            # cifar10, linf 8/255, autoattack, 10,000 images

Only comparable audits are ranked together: those of the same images of the same data, under the same threat and the
same attacks with the same settings. They make a division; a model under a weaker attack is in another one.
docs/leaderboard.md explains every number.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError, check_known
from classwise.core.format import listed
from classwise.core.notebook import Displayed
from classwise.core.records import WORST_CASE
from classwise.results import division, drafts
from classwise.results.audit_result import json_rows
from classwise.results.division import Division
from classwise.results.drafts import Draft
from classwise.results.submissions import Submission
from classwise.stats import intervals


@dataclass(frozen=True, kw_only=True)
class Leaderboard(Displayed):
    """Divisions of comparable models, and what makes them harder to compare.

    printed: numbers printed in papers, to be shown beside a division (`division` is its number) and never ranked.
    """

    divisions: tuple[Division, ...]
    confidence: float
    notes: tuple[str, ...] = ()
    printed: pd.DataFrame = field(default_factory=pd.DataFrame)

    def table(self) -> pd.DataFrame:
        """One row per model, in divisions, the best first.

        division, data, norm, eps, attack, images; rank (models that tie share it), rank_low and rank_high (see
        `stats.ranks`); name, method, architecture, seed; clean and average (means of the class accuracies),
        worst_class, worst, worst_low, worst_high, cv, mcd, bottom_tenth (mean of the lowest tenth of the classes, where
        there are at least 20); training_seconds and epochs, audit_seconds, folder; against the division's first model:
        behind (of its worst class) with p_behind (Holm over each two models), overall_difference with overall_low,
        overall_high and overall_p (McNemar over all images, Holm over the models).
        """
        return pd.concat([_with_place(number, one) for number, one in enumerate(self.divisions, 1)], ignore_index=True)

    def families(self) -> pd.DataFrame:
        """One row for each recipe that was trained with several seeds: models, mean, lowest and highest of worst class
        and average, and the best and worst rank."""
        parts = [one.families.assign(division=number) for number, one in enumerate(self.divisions, 1)]
        return pd.concat(parts, ignore_index=True)

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary; what is not defined is None."""
        return {
            "confidence": self.confidence,
            "notes": list(self.notes),
            "divisions": [
                {
                    "title": one.title,
                    "sentence": one.sentence(),
                    "data": one.data,
                    "threat": {"norm": one.norm, "eps": one.eps},
                    "attack": one.attack,
                    "images": one.images,
                    "models": json_rows(one.rows),
                    "classes": {str(name): _plain(row) for name, row in one.classes.iterrows()},
                    "p_better": {str(name): _plain(row) for name, row in one.p.iterrows()},
                    "families": json_rows(one.families),
                    "printed": json_rows(self.printed_beside(number)),
                }
                for number, one in enumerate(self.divisions, 1)
            ],
        }

    def printed_beside(self, number: int) -> pd.DataFrame:
        """The printed numbers beside a division, counted from 1."""
        return self.printed if self.printed.empty else self.printed[self.printed["division"] == number]

    def to_csv(self) -> str:
        """The table as it is."""
        return csv_text(self.table())

    def to_json(self) -> str:
        return json.dumps(self.summary(), indent=1, allow_nan=False) + "\n"

    def sorted_by(self, column: str) -> Leaderboard:
        """The same board with the rows of each division sorted by a column, the best value first."""
        return dataclasses.replace(self, divisions=tuple(one.sorted_by(column) for one in self.divisions))

    def __str__(self) -> str:
        return "\n".join(f"{one.title}: {one.sentence()}" for one in self.divisions)

    __repr__ = __str__


def of(
    submissions: Sequence[Submission], attack: str | None = None, common: bool = False, confidence: float = 0.95
) -> Leaderboard:
    """The board of these submissions. attack: the rows that decide, by default each audit's headline. common: audits
    that differ only in their images are ranked together, on the images that all of them saw."""
    intervals.check_confidence(confidence)
    if not submissions:
        raise UserError("a leaderboard needs at least one finished audit; give run folders, or a folder of them.")
    without = [one.name for one in submissions if attack not in (None, WORST_CASE, *one.audit.names)]
    chosen = [one for one in submissions if one.name not in without]
    if not chosen:
        known = {name for one in submissions for name in one.audit.names}
        check_known("attack in these audits", known, attack)
    notes = [f"Without {attack}, and not on this board: {listed(without)}."] if without else []
    found: dict[str, list[Draft]] = {}
    for one in chosen:
        draft = Draft.of(one, one.audit.headline if attack is None else attack)
        found.setdefault(draft.key(images=not common), []).append(draft)
    if common:
        found = {key: drafts.on_common_images(group, notes) for key, group in found.items()}
    groups = sorted(found.values(), key=lambda group: (group[0].data, group[0].title, -len(group)))
    titles = drafts.titles(groups)
    divisions = tuple(division.of(title, group, confidence) for title, group in zip(titles, groups, strict=True))
    notes += [note for group in groups for note in drafts.same_model(group)]
    if not common and len({group[0].key(images=False) for group in groups}) < len(groups):
        notes.append(
            "Some divisions differ only in their images. Audit the same ones, or rank all on the images they share "
            "with --common (common=True)."
        )
    return Leaderboard(divisions=divisions, confidence=confidence, notes=tuple(notes))


def _with_place(number: int, one: Division) -> pd.DataFrame:
    place: dict[str, Any] = {
        "division": number,
        "data": one.data,
        "norm": one.norm,
        "eps": one.eps,
        "attack": " + ".join(one.kinds),
    }
    table = one.rows.copy()
    for at, (key, value) in enumerate({**place, "images": one.images}.items()):
        table.insert(at, key, value)
    return table


def _plain(row: pd.Series[Any]) -> dict[str, float | None]:
    return {str(key): None if pd.isna(value) else float(value) for key, value in row.items()}
