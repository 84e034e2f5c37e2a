"""The measured numbers of a dossier and what they can be relied on for: every class under every attack, with intervals
of one class, of all classes at once, and of the worst class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from classwise.core.format import level
from classwise.core.records import CLEAN, WORST_CASE
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit

#: Data sets whose images are corrupted ones.
_CORRUPTED = ("corruption:", "cifar10_c", "cifar100_c")


def of(audit: Audit) -> dict[str, Any]:
    """The numbers of a run: those of summary.json, and the simultaneous intervals."""
    summary = audit.summary()
    entries = {**summary["attacks"], WORST_CASE: summary["worst_case"]}
    wanted = [*audit.names, *([WORST_CASE] if len(audit.attacks) > 1 else [])]
    return {
        "headline": summary["headline"],
        "confidence": summary["confidence"],
        "verdict": audit.verdict().sentence,
        "verdict_line": audit.verdict().headline,
        "attacks": {name: _attack(audit, name, entries[name]) for name in wanted},
    }


def _attack(audit: Audit, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    together = accuracy.compute(audit.rows(name), interval="exact", confidence=audit.confidence, simultaneous=True)
    classes = [
        {key: row[key] for key in ("class", "n", "correct", "accuracy", "low", "high")}
        | {"simultaneous_low": _plain(low), "simultaneous_high": _plain(high)}
        for row, low, high in zip(entry["by_class"], together.low, together.high, strict=True)
    ]
    kept = ("accuracy", "accuracy_low", "accuracy_high", "average", "worst")
    return {**{key: entry[key] for key in kept}, "classes": classes}


def is_corrupted(audit: Audit) -> bool:
    """Whether the images of a run are corrupted ones, by the name of its data."""
    return str(audit.config.get("data", {}).get("name", "")).startswith(_CORRUPTED)


def drop(audits: Mapping[str, Audit], numbers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per class the accuracy on clean, attacked and corrupted images, with the changes from clean.

    Clean and attacked are of the first run whose images are not corrupted; corrupted is the mean of the corrupted runs.
    """
    plain = [name for name, audit in audits.items() if not is_corrupted(audit)]
    corrupted = [name for name, audit in audits.items() if is_corrupted(audit) and CLEAN in audit.names]
    if not plain or CLEAN not in audits[plain[0]].names:
        return []
    own = numbers[plain[0]]
    clean, attacked = own["attacks"][CLEAN]["classes"], own["attacks"][own["headline"]]["classes"]
    rows = []
    for place, row in enumerate(clean):
        under = attacked[place]["accuracy"] if own["headline"] != CLEAN else None
        each = [numbers[name]["attacks"][CLEAN]["classes"][place]["accuracy"] for name in corrupted]
        mean = sum(each) / len(each) if each and None not in each else None
        rows.append(
            {
                "class": row["class"],
                "clean": row["accuracy"],
                "attacked": under,
                "corrupted": mean,
                "change_attacked": _change(row["accuracy"], under),
                "change_corrupted": _change(row["accuracy"], mean),
            }
        )
    return rows


def statement(audit: Audit) -> list[str]:
    """What the intervals mean, how many images there were and why, and in which direction the numbers err."""
    rows, how = audit.rows(), level(audit.confidence)
    counts = accuracy.counts(rows)[1]
    seen = counts[counts > 0]
    fewest, most = int(seen.min()), int(seen.max())
    per_class = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    protocol = {info.protocol for info in rows.meta.attacks.values()}
    point = (
        "An image counts as robust if no point that an attack tried breaks it."
        if protocol == {"any"}
        else "An image is judged at the last point of the attack, so points tried on the way do not count."
    )
    return [
        f"{len(rows):,} images of {len(seen):,} classes, {per_class} of each class.",
        f"Intervals of a class are Wilson's, each at {how} by itself. Simultaneous intervals are exact (Clopper and "
        f"Pearson) with Šidák's correction over the {len(seen):,} classes: with {how} confidence all hold at once. "
        "The interval of the worst class is for the lowest true accuracy of all classes, and not for the class that "
        "happened to come out lowest.",
        "Stopping rule: the run fixed its images before the first attack, by data set, selection and seed, and "
        "neither added nor left out any in view of results, so the intervals need no correction for looking more than "
        f"once. Whether this run was chosen among several is for the responsible person to say. {point}",
        "Direction of error: an attack can only find errors. A measured robust accuracy is an upper bound of the true "
        "one under this threat: a stronger attack may find it lower, none can find it higher. The intervals are about "
        "other images of the same kind, not about stronger attacks.",
    ]


def _change(clean: float | None, under: float | None) -> float | None:
    return None if clean is None or under is None else under - clean


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
