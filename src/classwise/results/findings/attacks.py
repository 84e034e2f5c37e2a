"""Rules about the attacks of an audit: signs that they are weak or misled, or that they leave the threat model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from classwise.core.format import p_equals, percent, points, radius
from classwise.core.meta import AttackInfo
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, paired
from classwise.results.audit_result import Audit
from classwise.results.finding import Found
from classwise.results.findings.images import is_near_chance
from classwise.stats import comparisons

_EFFORT = {"steps", "restarts", "draws", "queries", "iterations"}  # more of these can only strengthen an attack
_BEATS = 0.01  # share of the examples that an attack which should be weaker may break alone before it is reported
_MOST = 3  # classes named
_HARDLY = 0.01  # robust accuracy of a class of which hardly an image is left


def blind_beats_gradient(audit: Audit) -> Found:
    """A gradient attack that misses what an attack without gradients breaks: the gradient is masked, or it is weak."""
    complete = _complete(audit)
    for eps in dict.fromkeys(_radius(audit, name) for name in complete):
        same = [name for name in complete if _radius(audit, name) == eps]
        blind = [name for name in same if not _info(audit, name).needs_gradient]
        white = {name: complete[name] for name in same if name not in blind}
        for name in blind if white else ():
            strongest, rows = _strongest(white)
            alone = float((rows.correct & ~complete[name].correct).mean())
            if alone > _BEATS:
                yield (
                    f"{name} breaks {percent(alone)} of the examples that {strongest} could not.",
                    "The gradient misleads the attack (masked, saturated or randomised): use more steps and restarts, "
                    "margin_pgd, or --eot, and do not report the gradient attack alone.",
                    {"blind": name, "gradient": strongest, "share": alone},
                )


def more_steps_weaker(audit: Audit) -> Found:
    """More steps or restarts of the same attack that break fewer examples: its search is misled."""
    pairs = [pair for pair in itertools.permutations(_complete(audit), 2) if _more_effort(audit, *pair)]
    for less, more, gain, p in _weaker(audit, pairs):
        yield (
            f"{more} leaves {percent(gain)} more examples robust than {less}, which tries less ({p_equals(p)}).",
            "An attack must not weaken with effort: its gradient is masked or noisy. Try margin_pgd, several restarts "
            "and an attack without gradients, and report the strongest.",
            {"less": less, "more": more, "gain": gain, "p": p},
        )


def larger_eps_weaker(audit: Audit) -> Found:
    """A larger ball contains the smaller one, so an attack that breaks fewer examples in it does not search it."""
    curves: dict[str, list[str]] = {}
    for name in sorted(_complete(audit), key=lambda name: _radius(audit, name)):
        family = _info(audit, name).family
        if family is not None:
            curves.setdefault(family, []).append(name)
    pairs = [pair for members in curves.values() for pair in itertools.pairwise(members)]
    for smaller, larger, gain, p in _weaker(audit, pairs):
        yield (
            f"{larger} leaves {percent(gain)} more examples robust than {smaller}, in a smaller ball ({p_equals(p)}).",
            "The attack does not search the ball it is given: use more steps, a step size in proportion to eps, or "
            "protocol any.",
            {"smaller": smaller, "larger": larger, "gain": gain, "p": p},
        )


def radius_too_large(audit: Audit) -> Found:
    """An audit at one radius at which half of the classes, or more, have hardly an image left: their order is chance.

    Their accuracy is no more than `_HARDLY`. Along several radii a smaller one ranks the classes.
    """
    if audit.headline == CLEAN or audit.has_curve or is_near_chance(audit.rows(CLEAN), audit.confidence):
        return
    correct, support = accuracy.counts(audit.rows())
    left = correct[support > 0] / support[support > 0]
    gone = int((left <= _HARDLY).sum())
    if 2 * gone < len(left) or len(left) < 2:
        return
    eps, size = radius(audit.records.meta.eps), len(left)
    yield (
        f"The radius is too large to rank classes: at {eps}, {gone} of {size} classes have "
        f"{percent(_HARDLY, 0)} of their images robust, or none.",
        f"Use --eps-grid 8 (eps_grid=8), a curve up to {eps}: at smaller radii the classes still differ.",
        {"eps": audit.records.meta.eps, "classes": gone, "of": size},
    )


def temperature_beats_pgd(audit: Audit) -> Found:
    """Temperature-PGD that breaks more than PGD: smooth confidences hide the gradient (Tian et al., KDD 2021, §5)."""
    for what, classes, numbers in _temperature(audit, beats=True):
        yield (
            f"{what}{f'; most in {classes}' if classes else ''}.",
            "Smooth confidences hide part of the gradient from plain PGD: report the temperature or the margin attack, "
            "and expect the weak classes to be weaker than plain PGD shows.",
            numbers,
        )


def open_gradients(audit: Audit) -> Found:
    """Temperature-PGD that breaks no more than PGD."""
    for what, _, numbers in _temperature(audit, beats=False):
        yield f"{what}.", "No sign that smooth confidences hide gradients from plain PGD.", numbers


def verification(audit: Audit) -> Found:
    """Points that broke the accelerated copy but not the model."""
    for name, count in _counted(audit, "rejected"):
        what = f"{count} example(s) that {name} seemed to break were not confirmed by the untouched model."
        remedy = "They were attacked further and count only as the untouched model classified them."
        yield what, remedy, {"attack": name, "examples": count}


def outside_ball(audit: Audit) -> Found:
    """Points that the threat model does not allow."""
    for name, count in _counted(audit, "outside"):
        what = f"{count} point(s) that {name} proposed lie outside the ball or outside [0,1] and were refused."
        remedy = "The attack does not respect the threat model; check its eps, its norm, and the data's range."
        yield what, remedy, {"attack": name, "points": count}


def _counted(audit: Audit, what: str) -> list[tuple[str, int]]:
    return [(name, int(cost[what])) for name, cost in audit.records.meta.stats.items() if int(cost.get(what, 0))]


def _temperature(audit: Audit, beats: bool) -> Found:
    """The strongest Temperature-PGD against the strongest PGD of each radius: in words, who loses most, the numbers.

    beats: yields only where the first is the stronger beyond chance, or only where it is not.

    Exact McNemar test of the same examples; class by class it is corrected by Holm.
    """
    complete, alpha = _complete(audit), 1 - audit.confidence
    for eps in sorted({_radius(audit, name) for name in complete}):
        kinds = ("temperature_pgd", "pgd")
        same = {name: rows for name, rows in complete.items() if _radius(audit, name) == eps}
        own = [{n: r for n, r in same.items() if _info(audit, n).settings.get("name", n) == kind} for kind in kinds]
        if not all(own):
            continue
        (sharp, sharp_rows), (plain, plain_rows) = map(_strongest, own)
        table = paired.compute(plain_rows, sharp_rows)
        whole, classes = table.iloc[-1], table.iloc[:-1]
        gain, p = -float(whole["difference"]), float(whole["p"])
        if (gain > 0 and p < alpha) is not beats:
            continue
        below = classes[(classes["p_holm"] < alpha) & (classes["difference"] < 0)]
        below = below.sort_values("difference", kind="stable")
        lost = dict(zip(below["class"], below["difference"].astype(float), strict=True))
        yield (
            f"{sharp} leaves {percent(whole['second'])} robust, {plain} {percent(whole['first'])} ({p_equals(p)})",
            ", ".join(f"{name} {points(change)}" for name, change in [*lost.items()][:_MOST]),
            {"temperature": sharp, "pgd": plain, "gain": gain, "p": p, "classes": {n: -d for n, d in lost.items()}},
        )


def _weaker(audit: Audit, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, float, float]]:
    """The pairs whose second attack, which should be the stronger, is weaker beyond chance: by how much, and p.

    Exact McNemar test of the pairs, corrected for their number by Holm.
    """
    tested = [paired.compute(audit.records.of(first), audit.records.of(second)).iloc[-1] for first, second in pairs]
    corrected = comparisons.holm(np.array([row["p"] for row in tested]))
    for (first, second), row, p in zip(pairs, tested, corrected, strict=True):
        if row["difference"] > 0 and p < 1 - audit.confidence:
            yield first, second, float(row["difference"]), float(p)


def _more_effort(audit: Audit, less: str, more: str) -> bool:
    """Whether two attacks of the same radius differ only in effort, and the second spends more in all of it."""
    one, other = _info(audit, less).settings, _info(audit, more).settings
    changed = {key for key in {*one, *other} if one.get(key) != other.get(key)}
    if _radius(audit, less) != _radius(audit, more) or not changed or not changed <= _EFFORT:
        return False
    return all(key in one and key in other and other[key] > one[key] for key in changed)


def _complete(audit: Audit) -> dict[str, Records]:
    """The attacks that saw every example, with their rows."""
    names = [name for name in audit.records.attacks if name != CLEAN and _info(audit, name).coverage == "all"]
    return {name: audit.records.of(name) for name in names}


def _strongest(attacks: Mapping[str, Records]) -> tuple[str, Records]:
    """The attack that leaves the fewest examples robust, with its rows."""
    return min(attacks.items(), key=lambda item: float(item[1].correct.mean()))


def _info(audit: Audit, attack: str) -> AttackInfo:
    return audit.records.meta.attacks.get(attack, AttackInfo(settings={"name": attack}))


def _radius(audit: Audit, attack: str) -> float:
    eps = _info(audit, attack).eps
    return audit.records.meta.eps if eps is None else eps
