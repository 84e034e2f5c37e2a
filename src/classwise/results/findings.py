"""Findings: what the numbers themselves say is wrong or weak about an audit, each with what to do about it.

This file reads only records; what has to be asked of the model itself is in `classwise.auditing.sanity`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from classwise.core.format import level, p_equals, percent
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, overall, paired, worst
from classwise.results import verdict

Level = Literal["note", "warning", "serious"]

_FEW = 30  # below this many examples a class's 95% interval is wider than about ±18 points
_BLIND = {"boundary", "nattack", "noise", "square", "transfer"}  # attacks that see no gradient of this model
_EFFORT = {
    "steps",
    "restarts",
    "draws",
    "queries",
    "iterations",
}  # settings of which more can only strengthen an attack
_BEATS = 0.01  # an attack that should be weaker may break this share of examples on its own before we speak up


@dataclass(frozen=True)
class Finding:
    """One thing noticed: a code for machines, how grave it is, what it is, and what to do about it."""

    code: str
    level: Level
    what: str
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def from_records(records: Records, confidence: float = 0.95) -> list[Finding]:
    """Everything the rows of an audit show."""
    checks = (
        _near_chance,
        _few_images,
        _absent,
        _undecided,
        _blind_beats_gradient,
        _more_effort,
        _larger_radius,
        _temperature,
        _refused,
    )
    return [finding for check in checks for finding in check(records, confidence)]


def _complete(records: Records) -> dict[str, Records]:
    """The attacks that saw every example, with their rows."""
    infos = records.meta.attacks
    return {name: records.of(name) for name in records.attacks if name not in infos or infos[name].coverage == "all"}


def _kind(records: Records, attack: str) -> str:
    """The attack's own name, without its settings."""
    info = records.meta.attacks.get(attack)
    return str(info.settings.get("name", attack)) if info else attack


def _near_chance(records: Records, confidence: float) -> Iterator[Finding]:
    clean = records.of(CLEAN)
    chance = 1 / records.num_classes
    total = overall.compute(clean, confidence=confidence)
    if total.low <= 1.5 * chance / (1 + 0.5 * chance):  # odds up to half again those of guessing
        yield Finding(
            "near_chance",
            "serious",
            f"Clean accuracy is {percent(total.value)}; guessing among {records.num_classes} classes gives "
            f"{percent(chance)}.",
            "Check the weights, the order of the classes and the normalisation before reading anything else here.",
        )


def _few_images(records: Records, confidence: float) -> Iterator[Finding]:
    _, support = accuracy.counts(records.of(CLEAN))
    few = [name for name, n in zip(records.class_names, support, strict=True) if 0 < n < _FEW]
    if few:
        yield Finding(
            "few_images",
            "warning",
            f"{len(few)} of {records.num_classes} classes have fewer than {_FEW} images ({_some(few)}).",
            "Their intervals are wide: use more images per class before comparing them.",
        )


def _absent(records: Records, confidence: float) -> Iterator[Finding]:
    _, support = accuracy.counts(records.of(CLEAN))
    absent = [name for name, n in zip(records.class_names, support, strict=True) if n == 0]
    if absent:
        yield Finding(
            "absent_class",
            "note",
            f"{len(absent)} of {records.num_classes} classes have no image here ({_some(absent)}).",
            "They are left out of worst, average, CV and MCD; nothing is known of them.",
        )


def _undecided(records: Records, confidence: float) -> Iterator[Finding]:
    """Where the worst class is not decided: who ties, or how many images it would take to tell the lowest two apart."""
    for name, rows in _complete(records).items():
        if name == CLEAN:
            continue
        found = verdict.of(rows, name, confidence)
        if found.status == "tied":
            yield Finding(
                "worst_undecided",
                "note",
                f"Under {name}, {len(found.worst)} of {found.classes} classes tie for the worst with "
                f"{percent(found.accuracy)} ({_some(list(found.worst))}).",
                "Report them together: no number of images is known to separate classes of the same accuracy.",
            )
        elif found.status == "undecided":
            lowest = worst.separation(rows, confidence)
            (first, a, _), (second, b, _) = lowest.first, lowest.second
            images = "no realistic number" if lowest.needed is None else f"about {lowest.needed:,} images per class"
            yield Finding(
                "worst_undecided",
                "note",
                f"Under {name}, {first} ({percent(a)}) and {second} ({percent(b)}) cannot be told apart as the worst "
                f"class at {level(confidence)} confidence.",
                f"Report both, or use more images: {images} would separate them if the difference is real.",
            )


def _blind_beats_gradient(records: Records, confidence: float) -> Iterator[Finding]:
    """A gradient attack that loses to a blind one is not attacking: the gradient is masked, or the attack is weak."""
    complete = _complete(records)
    for eps in dict.fromkeys(_radius(records, name) for name in complete if name != CLEAN):
        same = {n: r for n, r in complete.items() if n != CLEAN and _radius(records, n) == eps}
        blind = {n: r for n, r in same.items() if _kind(records, n) in _BLIND}
        white = {n: r for n, r in same.items() if n not in blind}
        if not blind or not white:
            continue
        strongest, rows = min(white.items(), key=lambda item: item[1].correct.mean())
        for name, other in blind.items():
            alone = float((rows.correct & ~other.correct).mean())
            if alone > _BEATS:
                yield Finding(
                    "blind_beats_gradient",
                    "serious",
                    f"{name} breaks {percent(alone)} of the examples that {strongest} could not.",
                    "The gradient misleads the attack (masked, saturated or randomised): use more steps and restarts, "
                    "margin_pgd, or --eot, and do not report the gradient attack alone.",
                )


def _more_effort(records: Records, confidence: float) -> Iterator[Finding]:
    """More steps or restarts of the same attack that break fewer examples: its search is misled."""
    pairs = []
    for less, more in itertools.permutations(_complete(records), 2):
        if CLEAN not in (less, more) and _radius(records, less) == _radius(records, more):
            changed = _differing(_settings(records, less), _settings(records, more))
            if changed and changed <= _EFFORT and _larger(_settings(records, more), _settings(records, less), changed):
                pairs.append((less, more))
    for less, more, gain, p in _help_the_defender(records, pairs, confidence):
        yield Finding(
            "more_steps_weaker",
            "serious",
            f"{more} leaves {percent(gain)} more examples robust than {less}, which tries less ({p_equals(p)}).",
            "An attack must not weaken with effort: its gradient is masked or noisy. Try margin_pgd, several restarts "
            "and an attack without gradients, and report the strongest.",
        )


def _larger_radius(records: Records, confidence: float) -> Iterator[Finding]:
    """A larger ball holds the smaller one, so an attack that does worse in it is not searching it."""
    curves: dict[str, list[str]] = {}
    for name in sorted(_complete(records), key=lambda name: _radius(records, name)):
        info = records.meta.attacks.get(name)
        if info is not None and info.family is not None:
            curves.setdefault(info.family, []).append(name)
    pairs = [pair for members in curves.values() for pair in itertools.pairwise(members)]
    for smaller, larger, gain, p in _help_the_defender(records, pairs, confidence):
        yield Finding(
            "larger_eps_weaker",
            "serious",
            f"{larger} leaves {percent(gain)} more examples robust than {smaller}, in a smaller ball ({p_equals(p)}).",
            "The attack does not search the ball it is given: use more steps, a step size in proportion to eps, or "
            "protocol any.",
        )


def _help_the_defender(
    records: Records, pairs: list[tuple[str, str]], confidence: float
) -> Iterator[tuple[str, str, float, float]]:
    """The pairs whose second attack, which should be the stronger, is weaker beyond chance: by how much, and p.

    Exact McNemar test of the pairs, corrected for their number by Holm.
    """
    tested = [paired.compute(records.of(first), records.of(second)).iloc[-1] for first, second in pairs]
    corrected = paired.holm(np.array([row["p"] for row in tested]))
    for (first, second), row, p in zip(pairs, tested, corrected, strict=True):
        if row["difference"] > 0 and p < 1 - confidence:
            yield first, second, float(row["difference"]), float(p)


def _radius(records: Records, attack: str) -> float:
    info = records.meta.attacks.get(attack)
    return records.meta.eps if info is None or info.eps is None else info.eps


def _settings(records: Records, attack: str) -> Mapping[str, Any]:
    info = records.meta.attacks.get(attack)
    return {"name": attack} if info is None else info.settings


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    return {key for key in {*one, *other} if one.get(key) != other.get(key)}


def _larger(one: Mapping[str, Any], other: Mapping[str, Any], keys: set[str]) -> bool:
    return all(key in one and key in other and one[key] > other[key] for key in keys)


def _temperature(records: Records, confidence: float) -> Iterator[Finding]:
    """Whether sharpening the softmax finds more than plain PGD: then smooth confidences hid the gradient."""
    complete = _complete(records)
    plain = {n: r for n, r in complete.items() if _kind(records, n) == "pgd"}
    if not plain:
        return
    base_name, base = min(plain.items(), key=lambda item: item[1].correct.mean())
    for name, rows in complete.items():
        if _kind(records, name) != "temperature_pgd":
            continue
        whole = paired.compute(base, rows).iloc[-1]
        gain = float(base.correct.mean() - rows.correct.mean())
        if gain > 0 and whole["p"] < 1 - confidence:
            inverse = records.meta.attacks[name].settings["inv_temperature"]
            yield Finding(
                "temperature_beats_pgd",
                "serious" if gain > 0.02 else "warning",
                f"{name} (1/T = {inverse:g}) breaks {percent(gain)} more of the examples than {base_name} "
                f"({p_equals(whole['p'])}).",
                "The model's confidences are scaled so that plain cross entropy misleads the attack: report the "
                "temperature or margin attack, not plain PGD.",
            )


def _refused(records: Records, confidence: float) -> Iterator[Finding]:
    for name, cost in records.meta.stats.items():
        if rejected := int(cost.get("rejected", 0)):
            yield Finding(
                "verification",
                "note",
                f"{rejected} example(s) that {name} seemed to break were refused by the untouched model.",
                "They were attacked further and count only as the untouched model judged them.",
            )
        if outside := int(cost.get("outside", 0)):
            yield Finding(
                "outside_ball",
                "serious",
                f"{outside} point(s) that {name} proposed lie outside the ball or outside [0,1] and were refused.",
                "The attack does not respect the threat model; check its eps, its norm, and the data's range.",
            )


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
