"""The verdict: one audit in a sentence that somebody who knows no statistics understands.

    cat is the weak class: 18.2% robust, 95% interval 15.9 to 20.7, 21 points under the average; half of its failures
    (51%) become dog.

The rules: A class is called weak if it is the worst with the audit's confidence (`metrics.p_worst`). If no class is,
the smallest set that holds the worst one with that confidence is named, up to three classes of it, and counted beyond
that. The interval is Wilson's of that class, the average the mean of the class accuracies. Shares of failures are said
in words with the number beside. Without an attack the talk is of being right, not of being robust.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from classwise.metrics import misclassified
from classwise.records import CLEAN, Records
from classwise.results import Audit

_NAMED = 3  # classes a sentence names
#: The least share that is still called so.
_WORDS = (
    (0.9, "nearly all"),
    (0.7, "most"),
    (0.55, "more than half"),
    (0.45, "half"),
    (0.37, "four in ten"),
    (0.29, "a third"),
    (0.22, "a quarter"),
    (0.17, "a fifth"),
)


def verdict(audit: Audit, attack: str | None = None) -> str:
    """The verdict on an audit, under its headline attack or the one named. Plain text: escape it for a page."""
    table = audit.by_class(attack)
    # Of classes that tie, the one with more images is the surer to be weak.
    seen = table.dropna(subset=["accuracy"]).sort_values(["accuracy", "n"], ascending=[True, False], kind="stable")
    clean = (audit.headline if attack is None else attack) == CLEAN
    said = _said(seen, audit.rows(attack), "right" if clean else "robust", audit.confidence)
    absent = len(table) - len(seen)
    are = "class has no image and is" if absent == 1 else "classes have no image and are"
    begun = f"Without an attack, {said}" if clean else re.sub(r"^(no class stands|all \d+ classes are)", _capital, said)
    return f"{begun}.{f' {absent} {are} not counted.' if absent else ''}"


def _said(seen: pd.DataFrame, rows: Records, quality: str, confidence: float) -> str:
    """What is said of the classes that have images, given weakest first."""
    first, average = seen.iloc[0].to_dict(), float(seen["accuracy"].mean())
    if len(seen) == 1:
        return f"{_called(first['class'])} is the only class with images: {_level(first, quality, confidence)}"
    if seen["accuracy"].nunique() == 1:
        so = {0: "not one image stands", 1: "every image stands"}.get(first["accuracy"], "none is weaker than another")
        return f"all {len(seen)} classes are equal, {_percent(first['accuracy'])} {quality}: {so}"
    suspects = _suspects(seen, confidence)
    if len(suspects) == 1:
        level = f"{_level(first, quality, confidence)}, {_points(average - first['accuracy'])} under the average"
        return f"{_called(first['class'])} is the weak class: {level}{_failures(seen.index[0], rows)}"
    if len(suspects) <= _NAMED:
        return _close(suspects, rows, quality, confidence, average)
    ends = [f"{_called(row['class'])} at {_percent(row['accuracy'])}" for row in (first, suspects.iloc[-1].to_dict())]
    tied = suspects["accuracy"].nunique() == 1
    levels = f"all at {_percent(first['accuracy'])}" if tied else f"from {ends[0]} to {ends[1]}"
    return (
        f"no class stands out as the weak one: it may be any of {len(suspects)} of the {len(seen)} classes, {levels} "
        f"{quality}; the average is {_percent(average)}"
    )


def _suspects(seen: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The fewest classes that hold the worst one with this confidence, and always the one that came out lowest."""
    likely = seen.sort_values("p_worst", ascending=False, kind="stable")
    enough = int(np.searchsorted(likely["p_worst"].cumsum().to_numpy(), confidence))
    least = likely["p_worst"].iloc[min(enough, len(likely) - 1)] - 1e-9  # those that tie come together
    return seen.iloc[[place for place, p in enumerate(seen["p_worst"]) if place == 0 or p >= least]]


def _close(suspects: pd.DataFrame, rows: Records, quality: str, confidence: float, average: float) -> str:
    """Two or three classes that the images cannot tell apart."""
    names = [_called(name) for name in suspects["class"]]
    levels = [
        f"{name} at {_percent(row['accuracy'])} ({_interval(row)})"
        for name, row in zip(names, suspects.to_dict("records"), strict=True)
    ]
    return (
        f"{_join(names, 'or')} is the weak class, too close to call: {_join(levels, 'and')} {quality}, each with its "
        f"{confidence:.0%} interval; the average is {_percent(average)}"
        f"{_failures(suspects.index[0], rows, of=names[0])}"
    )


def _level(row: Mapping[Any, Any], quality: str, confidence: float) -> str:
    return f"{_percent(row['accuracy'])} {quality}, {confidence:.0%} interval {_interval(row)}"


def _interval(row: Mapping[Any, Any]) -> str:
    return f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"


def _failures(number: Any, rows: Records, of: str | None = None) -> str:
    """Where the failures of a class go, as the end of a sentence about it, or `of` it; empty if it has none."""
    counts = misclassified.compute(rows)[number]
    total, most = int(counts.sum()), int(counts.max())
    if total == 0:
        return ""
    goes = [_called(rows.class_names[c]) for c in np.flatnonzero(counts == most)]
    if total == 1:
        return f"; {'its only failure' if of is None else f'the only failure of {of}'} becomes {goes[0]}"
    its, share = "its failures" if of is None else f"the failures of {of}", most / total
    if len(goes) > _NAMED:
        return f"; {its} go to no class in particular"
    if len(goes) > 1:
        return f"; {its} become {_join(goes, 'and')} most often ({share:.0%} each)"
    if most == total:
        return f"; {'both' if total == 2 else f'all {total:,}'} of {its} become {goes[0]}"
    word = next((word for least, word in _WORDS if share >= least), None)
    if word is None:
        return f"; {its} go to many classes, most often {goes[0]} ({_percent(share)})"
    return f"; {word} of {its} ({min(share, 0.99):.0%}) become {goes[0]}"


def _percent(value: float) -> str:
    """A share that is only called 0% or 100% if it is."""
    if 0 < value < 0.0005:
        return "under 0.1%"
    if 0.9995 <= value < 1:
        return "over 99.9%"
    return f"{100 * value:.0f}%" if value in (0, 1) else f"{100 * value:.1f}%"


def _points(gap: float) -> str:
    """A gap in points: whole ones where it is wide."""
    if gap < 0.0005:
        return "less than 0.1 points"
    return f"{100 * gap:.0f} points" if gap >= 0.0995 else f"{100 * gap:.1f} points"


def _join(parts: Sequence[str], last: str) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _capital(found: re.Match[str]) -> str:
    return found[0].capitalize()


def _called(name: str) -> str:
    """A class by a name that cannot be mistaken for a number or for part of the sentence."""
    if not re.search(r"[^\W\d_]", name):
        return f"class {name}"
    return f"“{name}”" if re.search(r"[^\w\s'/-]", name) else name
