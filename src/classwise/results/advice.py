"""Advice: what the numbers of audits suggest doing next, each with those numbers and where the docs explain it.

Computed, not invented: every advice is a test or a formula over the records, and none is given where the records do not
support it. What is wrong with an audit is said by `classwise.results.findings`; this file says what to try.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from classwise.core.errors import UserError
from classwise.core.format import distance, level, p_equals, percent, points
from classwise.core.records import CLEAN, WORST_CASE, Records
from classwise.metrics import accuracy, misclassified, overall, paired, worst
from classwise.results import verdict
from classwise.results.audit_result import Audit
from classwise.results.compare import Comparison, listed
from classwise.results.findings import Finding
from classwise.stats import intervals
from classwise.stats.intervals import POWER, Array

_DOCS = "docs/compare.md"
_MOST = 3  # pairs of classes named


@dataclass(frozen=True)
class Advice(Finding):
    """A finding that says what to try: with the numbers it rests on, and the section of the docs that explains it."""

    numbers: Mapping[str, Any]
    section: str


def of_audit(audit: Audit, attack: str | None = None) -> list[Advice]:
    """Everything one audit suggests, under its headline attack or the one named."""
    rows = audit.rows(attack)
    robust = (audit.headline if attack is None else attack) != CLEAN
    return [
        *(lower_beta(rows, audit.confidence) if robust else ()),
        *hidden_gradients(audit.records, audit.confidence),
        *more_images(rows, audit.confidence),
    ]


def of_comparison(comparison: Comparison) -> list[Advice]:
    """For each run whether it differs from the base by more than chance."""
    return [*beyond_chance(comparison)]


def lower_beta(records: Records, confidence: float = 0.95, homing: Array | None = None) -> Iterator[Advice]:
    """Which class's β of TRADES to lower to help which (Tian et al., KDD 2021, Section 6.1); the weakest three first.

    Lowering β_j makes class j less robust, and those classes more robust that are broken into j. One β alone helps
    class i if the two have a one-to-one relation, see `_one_to_one`. Said only of classes below the average, and only
    if j is the more robust of the two, for j pays; and only of a model that is robust beyond guessing: an undefended
    one was not trained with any β.

    homing: counts H_ij of the flips i → j that become right when the model is trained again without class j; where it
    is known it takes the place of the flips, as in the paper.
    """
    flips = misclassified.compute(records) if homing is None else _off_diagonal(homing, records.num_classes)
    if overall.compute(records, confidence=confidence).low <= 1 / records.num_classes:
        return
    correct, support = accuracy.counts(records)
    share, names = intervals.ratio(correct, support), records.class_names
    weak = [i for i in np.argsort(share, kind="stable").tolist() if share[i] < np.nanmean(share)]
    related = ((i, _one_to_one(i, flips, support)) for i in weak)
    helped = [(i, *r) for i, r in related if r is not None and r[2] < 1 - confidence and share[r[0]] > share[i]]
    for i, j, k, p in helped[:_MOST]:
        home = "" if homing is None else " and would be right without it"
        yield Advice(
            "lower_beta",
            "note",
            f"{names[i]} ({percent(share[i])}) and {names[j]} ({percent(share[j])}) are one to one: {flips[i, j]:,} of "
            f"the {support[i]:,} images of {names[i]} become {names[j]}{home}, {flips[i, k]:,} become {names[k]}, the "
            f"next ({p_equals(p)}).",
            f"To help {names[i]}, train TRADES with a lower beta for {names[j]}: beta = {{{_key(names[j])} = 0.5}}. "
            f"It can win at most {distance(flips[i, j] / support[i])} points, and {names[j]} pays.",
            {
                "help": names[i],
                "lower": names[j],
                "flips": int(flips[i, j]),
                "next": names[k],
                "next_flips": int(flips[i, k]),
                "images": int(support[i]),
                "p": p,
            },
            f"{_DOCS}#which-beta-to-lower",
        )


def _one_to_one(i: int, flips: Array, support: Array) -> tuple[int, int, float] | None:
    """The class j that i is one to one with, the runner-up k and the p-value; None if there is none.

    No class breaks into j at a higher rate than i, and i breaks into j more often than into any other: the exact
    binomial test of N_ij out of N_ij + N_ik, by Bonferroni over the classes the runner-up k was chosen from. The paper
    reads the relation from the matrix by eye; the rule is ours.
    """
    others = np.flatnonzero((support > 0) & (np.arange(len(support)) != i))
    if len(others) < 2:
        return None
    *_, k, j = others[np.argsort(flips[i, others], kind="stable")].tolist()
    if intervals.ratio(flips[:, j], support)[i] < np.nanmax(intervals.ratio(flips[:, j], support)) or not flips[i, j]:
        return None
    p = stats.binomtest(int(flips[i, j]), int(flips[i, j] + flips[i, k])).pvalue
    return j, k, min(1.0, (len(others) - 1) * float(p))


def hidden_gradients(records: Records, confidence: float = 0.95) -> Iterator[Advice]:
    """Whether Temperature-PGD says that smooth confidences hide the gradient (Tian et al., KDD 2021, Section 5).

    The strongest Temperature-PGD against the strongest PGD of the same radius, by the exact McNemar test of the same
    examples; class by class it is corrected by Holm.
    """
    for eps in sorted({_radius(records, name) for name in _ran(records, "temperature_pgd")}):
        sharp, plain = (_strongest(records, kind, eps) for kind in ("temperature_pgd", "pgd"))
        if sharp is None or plain is None:
            continue
        table = paired.compute(plain[1], sharp[1])
        whole, classes = table.iloc[-1], table.iloc[:-1]
        gain, p = -float(whole["difference"]), float(whole["p"])
        hidden = gain > 0 and p < 1 - confidence
        below = classes[(classes["p_holm"] < 1 - confidence) & (classes["difference"] < 0)]
        most = below.sort_values("difference", kind="stable").head(_MOST)
        where = ", ".join(f"{c} {points(d)}" for c, d in zip(most["class"], most["difference"], strict=True))
        what = (
            f"{sharp[0]} leaves {percent(whole['second'])} robust, {plain[0]} {percent(whole['first'])} ({p_equals(p)})"
        )
        yield Advice(
            "hidden_gradients" if hidden else "open_gradients",
            "warning" if hidden else "note",
            f"{what}{f'; most in {where}' if hidden and where else ''}.",
            "The defence hides part of its gradients behind smooth confidences: report the temperature or the margin "
            "attack, and expect the weak classes to be weaker than plain PGD shows."
            if hidden
            else "No sign that smooth confidences hide gradients: plain PGD is not misled by them here.",
            {
                "temperature": sharp[0],
                "pgd": plain[0],
                "gain": gain,
                "p": p,
                "classes": {c: float(-d) for c, d in zip(below["class"], below["difference"], strict=True)},
            },
            f"{_DOCS}#hidden-gradients",
        )


def more_images(records: Records, confidence: float = 0.95, power: float = POWER) -> Iterator[Advice]:
    """How many images it takes to tell the two lowest classes apart, where the verdict does not; or that classes tie.

    The verdict and the number of images rest on the same test, see `metrics.worst`.
    """
    found = verdict.of(records, WORST_CASE, confidence)
    if found.status not in ("tied", "undecided"):
        return
    lowest = worst.separation(records, confidence, power)
    (first, a, n), (second, b, m), need = lowest.first, lowest.second, lowest.needed
    more = {name: None if need is None else max(0, need - have) for name, _, have in (lowest.first, lowest.second)}
    wanted = " and ".join(f"{count:,} more of {name}" for name, count in more.items() if count)
    yield Advice(
        "more_images",
        "note",
        f"{len(found.worst)} classes tie for the worst with {percent(found.accuracy)} ({listed(found.worst)})."
        if found.status == "tied"
        else f"The two classes of lowest accuracy, {first} ({percent(a)}) and {second} ({percent(b)}), are not told "
        f"apart by {n:,} and {m:,} images.",
        "Classes of the same accuracy are not told apart by any number of images that could be named: report them "
        "together."
        if need is None
        else f"About {need:,} images of each would do it in {percent(power, 0)} of cases, if the difference is what it "
        f"seems: {wanted}.",
        {
            "first": first,
            "second": second,
            "tied": list(found.worst),
            "needed": need,
            "more": more,
            "power": power,
            "confidence": confidence,
        },
        f"{_DOCS}#how-many-images",
    )


def beyond_chance(comparison: Comparison) -> Iterator[Advice]:
    """Whether each run differs from the base over all examples, corrected by Holm for the number of runs.

    Chance is that of drawing the images. It is not that of training: another seed makes another model.
    """
    runs = comparison.table().set_index("run").to_dict("index")
    for name, pair in comparison.pairs.items():
        run = runs[name]
        beyond = run["p_holm"] < 1 - comparison.confidence
        test = "exact McNemar test of the same images" if pair else "Fisher's exact test of different images"
        yield Advice(
            "beyond_chance" if beyond else "within_chance",
            "note",
            f"{name} is {distance(run['difference'])} points {'under' if run['difference'] < 0 else 'above'} "
            f"{comparison.base} over all images "
            f"({level(comparison.confidence)} interval {points(run['low'])} to {points(run['high'])}; {test}, "
            f"{p_equals(run['p_holm'])}).",
            "The difference is beyond the chance of drawing images. Train with other seeds before crediting the method."
            if beyond
            else "Call them equal, or audit more images: a difference of this size can come from the images drawn.",
            {
                "run": name,
                "base": comparison.base,
                "paired": pair,
                **{key: float(run[key]) for key in ("difference", "low", "high", "p", "p_holm")},
            },
            f"{_DOCS}#beyond-chance",
        )


def _off_diagonal(matrix: Array, size: int) -> Array:
    if np.shape(matrix) != (size, size):
        raise UserError(f"the homing matrix has shape {np.shape(matrix)}, expected ({size}, {size}).")
    return np.asarray(matrix) * (1 - np.eye(size, dtype=np.int64))


def _ran(records: Records, kind: str) -> list[str]:
    """The attacks of one kind that saw every example."""
    infos = records.meta.attacks
    return [
        name
        for name in records.attacks
        if name in infos and infos[name].coverage == "all" and infos[name].settings.get("name", name) == kind
    ]


def _radius(records: Records, attack: str) -> float:
    eps = records.meta.attacks[attack].eps
    return records.meta.eps if eps is None else eps


def _strongest(records: Records, kind: str, eps: float) -> tuple[str, Records] | None:
    """The attack of a kind and radius that leaves the fewest standing, with its rows."""
    found = {name: records.of(name) for name in _ran(records, kind) if _radius(records, name) == eps}
    return min(found.items(), key=lambda item: float(item[1].correct.mean())) if found else None


def _key(name: str) -> str:
    """A class name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
