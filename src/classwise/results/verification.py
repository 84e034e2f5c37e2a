"""Whether a submission holds: its rows beside those of a second audit of some of its images. Numbers only.

Each image is one of

    same           the same clean prediction, and broken in both audits or in neither
    tie            another clean prediction, of a class that the model gives the same probability but for rounding
    clean          another clean prediction: not this model, or not these images
    found here     broken here, robust in the submission, which therefore claims too much
    not repeated   broken in the submission only; it takes nothing it has not got, so that does not count

Other processors and batch sizes round differently, and an attack of many steps can carry that to the other side of a
decision. So a small share τ of the images, the tolerance, may be found here by rounding, and no clean prediction may
differ. A submission does not hold if more are found here than X ~ Binomial(n, τ) explains at the level 0.05: of all
images or, Bonferroni over the classes, of the images of any one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its stats are loaded at their first use

from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError
from classwise.core.format import listed, percent
from classwise.core.records import CLEAN, WORST_CASE, Array, Records
from classwise.results.audit_result import Audit, json_rows
from classwise.stats import intervals

TOLERANCE = 0.001
_LEVEL = 0.05  # of calling rounding a claim too much
_TIE = 1e-3  # difference of two probabilities that rounding may bridge
KINDS = ("same", "tie", "clean", "found here", "not repeated")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What became of each image that was audited again.

    rows: index, class, clean and clean_again (predictions), broken and broken_again, outcome (one of `KINDS`).
    wrong: what is wrong with the submission before any image is looked at. tolerance: the share that may be found here.
    seed: by which the images were drawn.
    """

    name: str
    attack: str
    rows: pd.DataFrame
    wrong: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise UserError(f"tolerance must be at least 0 and below 1, such as 0.001; got {self.tolerance:g}.")

    @property
    def counts(self) -> dict[str, int]:
        """How many images became what."""
        return {kind: int((self.rows["outcome"] == kind).sum()) for kind in KINDS}

    @property
    def allowed(self) -> int:
        """How many of all images rounding may have broken here."""
        return _most(len(self.rows), self.tolerance, _LEVEL)

    @property
    def too_many(self) -> tuple[str, ...]:
        """The classes in which more images are found here than rounding explains."""
        classes = self.by_class()
        level = _LEVEL / max(len(classes), 1)
        found = zip(classes["class"], classes["n"], classes["found here"], strict=True)
        return tuple(str(name) for name, n, count in found if count > _most(n, self.tolerance, level))

    @property
    def passed(self) -> bool:
        counts = self.counts
        return not (self.wrong or counts["clean"] or counts["found here"] > self.allowed or self.too_many)

    def claimed(self) -> tuple[str, float]:
        """The class that is the worst in the submission's part, and the largest share of its images that may be claimed
        too much, at 95% confidence."""
        classes = self.by_class()
        row = classes.iloc[int(classes["robust"].to_numpy(dtype=float).argmin())]
        _, high = intervals.bounds(np.array([row["found here"]]), np.array([row["n"]]), 0.9, "exact")
        return str(row["class"]), float(high[0])

    def by_class(self) -> pd.DataFrame:
        """One row per class: class, n, robust (in the submission), robust_again, and the images that became what."""
        own = self.rows.groupby("class", sort=False, observed=True)
        table = pd.DataFrame(
            {"n": own.size(), "robust": 1 - own["broken"].mean(), "robust_again": 1 - own["broken_again"].mean()}
        )
        for kind in KINDS[1:]:
            table[kind] = (self.rows["outcome"] == kind).groupby(self.rows["class"], sort=False, observed=True).sum()
        return table.reset_index()

    def differing(self) -> pd.DataFrame:
        """The images that are not the same."""
        return self.rows[self.rows["outcome"] != "same"].reset_index(drop=True)

    def sentences(self) -> list[str]:
        """What was found, the result first."""
        counts, total = self.counts, len(self.rows)
        if not total:
            return [f"{self.name} does not hold.", *self.wrong]
        verb = "holds" if self.passed else "does not hold"
        under = "the worst case" if self.attack == WORST_CASE else self.attack
        agree = f"{counts['same']:,} of {total:,} images audited again under {under} agree"
        found = [f"{self.name} {verb}: {agree}.", *self.wrong]
        if counts["clean"]:
            found.append(f"{counts['clean']:,} clean predictions differ; all must be equal. {self._which('clean')}")
        if counts["found here"]:
            beyond = f", more than rounding explains in {listed(self.too_many)}" if self.too_many else ""
            found.append(
                f"{counts['found here']:,} images are broken here and robust in the submission{beyond}; rounding "
                f"explains up to {self.allowed:,} of {total:,}. {self._which('found here')}"
            )
        if counts["not repeated"]:
            found.append(f"{counts['not repeated']:,} images are broken in the submission only, which does not count.")
        if counts["tie"]:
            found.append(f"{counts['tie']:,} clean predictions differ by a tie, which does not count.")
        if self.passed:
            worst, share = self.claimed()
            found.append(
                f"At 95% confidence at most {percent(share)} of the images of {worst}, the worst class here, are "
                "claimed too much; --per-class lowers that."
            )
        return found

    def _which(self, kind: str) -> str:
        own = self.rows[self.rows["outcome"] == kind]
        return "Images " + listed([f"{at} ({name})" for at, name in zip(own["index"], own["class"], strict=True)]) + "."

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary."""
        return {
            "name": self.name,
            "attack": self.attack,
            "passed": self.passed,
            "images": len(self.rows),
            "seed": self.seed,
            "tolerance": self.tolerance,
            "allowed": self.allowed,
            "counts": self.counts,
            "wrong": list(self.wrong),
            "sentences": self.sentences(),
            "differing": json_rows(self.differing()),
        }

    def to_csv(self) -> str:
        return csv_text(self.rows)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__


def compare(
    name: str, stored: Audit, again: Audit, wrong: Sequence[str] = (), tolerance: float = TOLERANCE, seed: int = 0
) -> Verification:
    """A submission's audit beside another one of some of its images."""
    clean, before, after = again.rows(CLEAN), _part(stored.rows(), again), again.rows()
    index = clean.index
    told = _by_index(_part(stored.rows(CLEAN), again), index)
    broken, broken_again = ~_by_index(before, index).correct, ~_by_index(after, index).correct
    differs = told.prediction != clean.prediction
    tie = differs & _is_tie(clean, told.prediction)
    outcome = np.select(
        [tie, differs, broken_again & ~broken, broken & ~broken_again], ["tie", "clean", "found here", "not repeated"],
        "same",
    )  # fmt: skip
    names = np.asarray(clean.class_names, dtype=object)
    rows = pd.DataFrame(
        {
            "index": index,
            "class": pd.Categorical(names[clean.label], categories=names, ordered=True),
            "clean": names[told.prediction],
            "clean_again": names[clean.prediction],
            "broken": broken,
            "broken_again": broken_again,
            "outcome": outcome,
        }
    )
    rows = rows.sort_values(["class", "index"], ignore_index=True)
    return Verification(name=name, attack=again.headline, rows=rows, wrong=tuple(wrong), tolerance=tolerance, seed=seed)


def refused(name: str, stored: Audit, wrong: Sequence[str], tolerance: float, seed: int) -> Verification:
    """A submission that is not of the images it says, so that none need be audited again."""
    rows = pd.DataFrame(columns=["index", "class", "clean", "clean_again", "broken", "broken_again", "outcome"])
    return Verification(
        name=name, attack=stored.headline, rows=rows, wrong=tuple(wrong), tolerance=tolerance, seed=seed
    )


def _most(n: int, tolerance: float, level: float) -> int:
    """The most of n images that chance breaks at this rate, but for a probability of at most `level`."""
    return int(scipy.stats.binom.ppf(1 - level, n, tolerance)) if n and tolerance else 0


def _part(rows: Records, again: Audit) -> Records:
    return rows.take(np.flatnonzero(np.isin(rows.index, again.rows(CLEAN).index)))


def _by_index(rows: Records, index: Array) -> Records:
    """The rows in the order of these examples, all of which they hold."""
    order = np.argsort(rows.index, kind="stable")
    return rows.take(order[np.searchsorted(rows.index[order], index)])


def _is_tie(clean: Records, other: Array) -> Array:
    """Whether the model gives its prediction and another class the same probability, but for rounding."""
    if clean.probs is None:
        return np.zeros(len(clean), dtype=bool)
    rows = np.arange(len(clean))
    return np.asarray(np.abs(clean.probs[rows, clean.prediction] - clean.probs[rows, other]) < _TIE)
