"""The verdict on the worst class of an audit, computed once and shown wherever an audit is.

    Under pgd-20, cat is the worst class: 18.2% robust (95% CI of the worst class 15.9–21.4%); the average of the
    classes is 49.5%; most often misclassified as dog (51% of its errors).

The rules, all in `metrics.worst`: Classes that tie for the lowest accuracy are named together. A class is called *the*
worst class only if every other class is ruled out at the audit's confidence (Fisher's exact test against the others,
Bonferroni) and it has at least `FEWEST` images. Otherwise the verdict says which classes may be the worst. The interval
is that of the lowest true class accuracy; the average is the mean of the class accuracies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from classwise.core.format import interval, level, listed, percent
from classwise.core.records import CLEAN, WORST_CASE, Records
from classwise.metrics import accuracy, average, confound, worst
from classwise.stats import intervals

#: single: one class has images; equal: all classes tie; tied: several do; decided: one class is the worst; undecided:
#: others may be it; few images: one class would be the worst, but has too few images to be called so.
Status = Literal["single", "equal", "tied", "decided", "undecided", "few images"]

_NAMED = 3  # classes a sentence names


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The worst class under one attack, and the confidence in it.

    worst: the classes of the lowest accuracy, in class order; images: how many they have, the fewest of any.
    possible: the classes that may be the worst at the confidence, lowest accuracy first. low and high: the confidence
    interval of the worst class. classes: how many have images; absent: how many have none. confused_with: what a
    single worst class is most often misclassified as, with its share of the class's errors.
    """

    attack: str
    status: Status
    worst: tuple[str, ...]
    possible: tuple[str, ...]
    accuracy: float
    low: float
    high: float
    average: float
    confidence: float
    images: int
    classes: int
    absent: int
    confused_with: str | None
    confused_share: float | None

    @property
    def label(self) -> str:
        """Who is the worst, for a table: one or two names, or how many classes tie."""
        return worst.label(self.worst)

    @property
    def sentence(self) -> str:
        """The verdict in words. Plain text: escape it for a page."""
        text = f"{self.where}, {_finding(self)}."
        if not self.absent:
            return text
        are = "class has no images and is" if self.absent == 1 else "classes have no images and are"
        return f"{text} {self.absent:,} {are} not counted."

    @property
    def headline(self) -> str:
        """The verdict in one plain line with its interval, for the top of a page; `sentence` says the rest."""
        return f"{_who(self)}: {_quality(self)} ({level(self.confidence)} CI {interval(self.low, self.high)})."

    @property
    def where(self) -> str:
        """Under which attack, as a sentence begins."""
        words = {CLEAN: "Without an attack", WORST_CASE: "In the worst case over all attacks"}
        return words.get(self.attack, f"Under {self.attack}")

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        facts = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {**facts, "sentence": self.sentence}


def of(rows: Records, attack: str, confidence: float = 0.95) -> Verdict:
    """The verdict on the rows of one attack, or of the worst case over all."""
    correct, support = accuracy.counts(rows)
    values, confounds = intervals.ratio(correct, support), confound.compute(rows)
    lowest = worst.compute(rows, confidence=confidence)
    images, classes = int(support[values == lowest.value].min()), int(np.count_nonzero(support))
    other, share = confounds.names[lowest.number], float(confounds.share[lowest.number])
    alone = len(lowest.tied) == 1 and other is not None
    return Verdict(
        attack=attack,
        status=_status(lowest, classes, images),
        worst=lowest.tied,
        possible=lowest.possible,
        accuracy=lowest.value,
        low=lowest.low,
        high=lowest.high,
        average=average.compute(rows),
        confidence=confidence,
        images=images,
        classes=classes,
        absent=len(support) - classes,
        confused_with=other if alone else None,
        confused_share=share if alone else None,
    )


def _status(lowest: worst.Worst, classes: int, images: int) -> Status:
    if classes == 1:
        return "single"
    if len(lowest.tied) == classes:
        return "equal"
    if len(lowest.tied) > 1:
        return "tied"
    if len(lowest.possible) > 1:
        return "undecided"
    return "decided" if images >= worst.FEWEST else "few images"


# ---- in words ------------------------------------------------------------------------------------------------------


def _who(v: Verdict) -> str:
    """The worst class, or the classes one of which it is, as a line begins: “Class 1”, but a name as it is."""
    first = re.sub("^class ", "Class ", called(v.worst[0])) if called(v.worst[0]) != v.worst[0] else v.worst[0]
    match v.status:
        case "single":
            return f"{first} is the only class with images"
        case "equal":
            return f"All {v.classes:,} classes are equally accurate"
        case "tied":
            return f"{len(v.worst):,} of {v.classes:,} classes tie for the worst"
        case "decided":
            return f"{first} is the worst class"
        case "undecided":
            others = len(v.possible) - 1
            rest = called(v.possible[1]) if others == 1 else f"one of {others:,} others"
            return f"{first} or {rest} is the worst class"
        case "few images":
            return f"{first} looks worst, on {v.images} image{'' if v.images == 1 else 's'}"


def _finding(v: Verdict) -> str:
    """The verdict without its attack."""
    first, accuracy, certain = called(v.worst[0]), _level(v), f"at {level(v.confidence)} confidence"
    lowest = f"{first} has the lowest accuracy: {accuracy}{_errors(v)}"
    match v.status:
        case "single":
            return f"{first} is the only class with images: {accuracy}"
        case "equal":
            return f"all {v.classes:,} classes are equally accurate: {accuracy}"
        case "tied":
            more = len(v.possible) - len(v.worst)
            tie = f"{len(v.worst):,} of the {v.classes:,} classes tie for the worst ({_some(v.worst)}): {accuracy}"
            return f"{tie}; {certain} {more:,} more may be the worst" if more else tie
        case "decided":
            return f"{first} is the worst class: {accuracy}{_errors(v)}"
        case "undecided":
            several = f"{len(v.possible):,} of the {v.classes:,} classes may be the worst ({_some(v.possible)})"
            return f"{lowest}; but {certain} {several}"
        case "few images":
            images = "1 image is" if v.images == 1 else f"{v.images} images are"
            return f"{lowest}; but {images} not enough to call it the worst class, which takes {worst.FEWEST}"


def _quality(v: Verdict) -> str:
    return f"{percent(v.accuracy)} {'correct' if v.attack == CLEAN else 'robust'}"


def _level(v: Verdict) -> str:
    of_worst = "" if v.status == "single" else " of the worst class"
    mean = "" if v.status in ("single", "equal") else f"; the average of the classes is {percent(v.average)}"
    return f"{_quality(v)} ({level(v.confidence)} CI{of_worst} {interval(v.low, v.high)}){mean}"


def _errors(v: Verdict) -> str:
    if v.confused_with is None or v.confused_share is None:
        return ""
    return f"; most often misclassified as {called(v.confused_with)} ({percent(v.confused_share, 0)} of its errors)"


def _some(names: Sequence[str]) -> str:
    return listed([called(name) for name in names], _NAMED)


def called(name: str) -> str:
    """A class by a name that cannot be mistaken for a number or for part of the sentence."""
    if not re.search(r"[^\W\d_]", name):
        return f"class {name}"
    return f"“{name}”" if re.search(r"[^\w\s'/-]", name) else name
