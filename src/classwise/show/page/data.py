"""What the page's script reads of a run: columns of numbers, the errors of each attack, and its images.

An error is three numbers in a row: true class, predicted class, count; of a million cells most are empty. Numbers are
rounded once: shares come in full and the script rounds them by the rule of `classwise.core.format`, intervals and
probabilities come as text. Their numbers, for bars and for sorting, have four digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from classwise import metrics
from classwise.core.format import interval, level, listed, percent, probability
from classwise.core.records import CLEAN, WORST_CASE, Array, Records
from classwise.metrics import confusion, groups, p_worst, superclass
from classwise.results.audit_result import Audit
from classwise.stats import intervals

_DIGITS = 4


@dataclass(frozen=True)
class Rollup:
    """Classes in groups: the data's superclasses where there are any, else groups found in the confusion."""

    kind: str
    names: tuple[str, ...]
    of: Array  # the group of each class


def of_run(
    name: str,
    audit: Audit,
    found: groups.Groups,
    gallery: Mapping[str, Mapping[str, Any]],
    why: Mapping[str, str],
) -> dict[str, Any]:
    """One run. gallery: by attack and cell the images to show (see `gallery.collect`); why: the reason for none."""
    rollup = roll_up(audit, found)
    attacks = list(dict.fromkeys((*audit.names, audit.headline)))
    views = [
        {
            "name": attack,
            "attack": attack_label(attack),
            **_view(audit, attack, rollup),
            "gallery": gallery.get(attack, {}),
            "why": why.get(attack, ""),
        }
        for attack in attacks
    ]
    classes = list(audit.records.class_names)
    return {
        "name": name,
        "level": level(audit.confidence),
        "classes": classes,
        "slugs": slugs(classes),
        "headline": attacks.index(audit.headline),
        "order": _order(audit, found, rollup),
        "rollup": rollup and {"kind": rollup.kind, "names": list(rollup.names), "of": rollup.of.tolist()},
        "views": views,
    }


def attack_label(attack: str) -> str:
    """An attack as the page names it."""
    return "the worst case" if attack == WORST_CASE else attack


def roll_up(audit: Audit, found: groups.Groups) -> Rollup | None:
    """The groups of an audit's classes; None where all classes would be in one, or each in its own."""
    records = audit.records
    if records.meta.superclasses:
        return Rollup("superclasses", tuple(records.meta.superclasses), superclass.superclass_of(records))
    names = [listed(members, 3) for members in found.members]
    of = np.where(found.number < 0, len(names), found.number)
    if (found.number < 0).any():
        names.append("without images")
    return None if len(names) in (1, records.num_classes) else Rollup("groups", tuple(names), of)


def _order(audit: Audit, found: groups.Groups, rollup: Rollup | None) -> list[int]:
    """By superclass where there are any; within each, or overall, in the order of the tree, similar ones together."""
    number = {name: place for place, name in enumerate(audit.records.class_names)}
    order = [number[name] for name in found.order]
    if rollup is None or rollup.kind != "superclasses":
        return order
    return sorted(order, key=lambda place: int(rollup.of[place]))


def _view(audit: Audit, attack: str, rollup: Rollup | None) -> dict[str, Any]:
    rows = audit.rows(attack)
    table = metrics.by_class(rows, audit.confidence)
    number = {name: place for place, name in enumerate(audit.records.class_names)}
    found = audit.verdict(attack)
    return {
        "verdict": found.sentence,
        "worst": [place for place, value in enumerate(table["accuracy"]) if value == found.accuracy],
        "rows": {
            "n": table["n"].tolist(),
            **_columns(table),
            "predicted": [None if pd.isna(other) else number[other] for other in table["confused_with"]],
            "share": shares(table["confused_share"]),
        },
        "groups": None if rollup is None else _grouped(table, rollup, audit.confidence),
        "errors": errors(rows),
    }


def _grouped(table: pd.DataFrame, rollup: Rollup, confidence: float) -> dict[str, Any]:
    """The class table summed over groups: an example still counts as correct only if its class is."""
    size = len(rollup.names)
    correct, support = (
        np.bincount(rollup.of, weights=table[key], minlength=size).astype(np.int64) for key in ("correct", "n")
    )
    low, high = intervals.bounds(correct, support, confidence)
    likely = p_worst.probabilities(correct, support)
    columns = {"accuracy": intervals.ratio(correct, support), "low": low, "high": high, "p_worst": likely}
    return {"n": support.tolist(), **_columns(pd.DataFrame(columns))}


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy, interval and probability of being the worst, of classes or of groups."""
    return {
        "accuracy": shares(table["accuracy"]),
        **{key: shares(table[key], _DIGITS) for key in ("low", "high", "p_worst")},
        "interval": [interval(*ends) for ends in zip(table["low"], table["high"], strict=True)],
        "probability": [probability(p) for p in table["p_worst"]],
    }


def errors(rows: Records) -> list[int]:
    """The confusion off its diagonal: true, predicted, count; true, predicted, …"""
    counts = confusion.compute(rows)
    np.fill_diagonal(counts, 0)
    true, predicted = np.nonzero(counts)
    return [int(value) for value in np.stack([true, predicted, counts[true, predicted]], axis=1).reshape(-1)]


def shares(values: Any, digits: int | None = None) -> list[float | None]:
    """Fractions for JSON in full, or to so many digits; None for what is not defined."""
    full = (float(value) if np.isfinite(value) else None for value in np.asarray(values, dtype=float))
    return [value if digits is None or value is None else round(value, digits) for value in full]


def slugs(names: Sequence[str]) -> list[str]:
    """A distinct name for each class for use in a URL: ``#class-cat``."""
    made: list[str] = []
    used: set[str] = set()
    for place, name in enumerate(names):
        plain = unicodedata.normalize("NFKC", name).lower()
        slug = re.sub(r"[^\w]+", "-", plain).strip("-") or str(place)
        while slug in used:
            slug += f"-{place}"
        used.add(slug)
        made.append(slug)
    return made


def headline_numbers(audit: Audit, besides: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """The numbers under the verdict, metrics named besides too: each number, what it is, and its interval or remark."""
    total = metrics.overall.compute(audit.rows(), confidence=audit.confidence)
    clean = metrics.overall.compute(audit.rows(CLEAN), confidence=audit.confidence)
    found, images = audit.verdict(), f"{total.support:,} images"
    ci = f"{level(audit.confidence)} CI"
    return [
        (percent(found.accuracy), f"worst class: {found.label}", f"{ci} {interval(found.low, found.high)}"),
        (
            percent(total.value),
            f"robust accuracy, {attack_label(audit.headline)}",
            f"{ci} {interval(total.low, total.high)}",
        ),
        (percent(clean.value), "clean accuracy", f"{ci} {interval(clean.low, clean.high)}"),
        *((m.written(audit.rows()), m.shown.caption or m.shown.title, images) for m in metrics.shown("page", besides)),
    ]
