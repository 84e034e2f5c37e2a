"""The paper's claims about homing, and their tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from classwise.core.format import percent
from classwise.core.records import Records
from classwise.metrics import misclassified, vulnerable
from classwise.studies.homing.tables import mutual
from classwise.studies.runner.result import Claim
from classwise.studies.shared.together import EXACT, exact, mean_interval, smallest
from classwise.studies.shared.verdicts import classes, exceeds, images, omnibus, undecided

_HALF = 0.5  # "most" is more than this share
_SOURCE = "tian2021:figure4b"


def claims(base: Records, broken: pd.DataFrame) -> list[Claim]:
    weak = broken[broken["class"].isin(vulnerable.compute(base).vulnerable)]
    return [_most(weak), _confound_matters(broken), _in_pairs(base)]


def _most(weak: pd.DataFrame) -> Claim:
    home, n = float(weak["home"].sum()), len(weak)
    text = "Most misclassified examples of vulnerable classes become robust when their confound class is left out."
    if not n:
        return Claim(_SOURCE, text, undecided("no errors"), "no image of a vulnerable class was broken")
    low, high = exact(home / n, n)
    ruling = exceeds(low, high, _HALF, test=EXACT, sample=images(n, "broken images"))
    numbers = f"{home:.0f} of {n} ({percent(home / n)}), 95% CI {percent(low)} to {percent(high)}"
    return Claim(_SOURCE, text, ruling, numbers)


def _confound_matters(broken: pd.DataFrame) -> Claim:
    """The mean over the images of home − elsewhere, which lies between −1 and 1, with the interval of a mean."""
    text = "It is the confound class that matters: leaving out another class makes fewer of the same images robust."
    judged = broken.dropna(subset=["elsewhere"])
    gains = (judged["home"] - judged["elsewhere"]).to_numpy()
    if len(gains) < 2:
        return Claim(_SOURCE, text, undecided("nothing to compare"), "needs trainings without at least two classes")
    mean, n = float(gains.mean()), len(gains)
    low, high = mean_interval(gains)
    numbers = (
        f"{percent(judged['home'].mean())} robust, {percent(judged['elsewhere'].mean())} without another class: "
        f"{100 * mean:+.1f} points, 95% CI {100 * low:+.1f} to {100 * high:+.1f}"
    )
    ruling = exceeds(low, high, test="Student's t over the images", sample=images(n, "broken images"))
    return Claim(_SOURCE, text, ruling, numbers)


def _in_pairs(base: Records) -> Claim:
    """Only classes with a unique most frequent confound count."""
    errors = misclassified.compute(base)
    alone = (errors == errors.max(axis=1, keepdims=True)).sum(axis=1) == 1
    pairs = [(i, j) for i, j in mutual(base) if alone[i] and alone[j]]
    choosing = int(alone.sum())
    p = chance_of_pairs(len(pairs), choosing, base.num_classes)
    named = ", ".join(f"{base.class_names[i]}-{base.class_names[j]}" for i, j in pairs) or "none"
    return Claim(
        "tian2021:figure4a",
        "Classes are confused in pairs: many are each other's most frequent confound.",
        omnibus(p, test="exact chance of as many pairs", sample=(images(smallest(base)), classes(choosing))),
        f"{len(pairs)} pairs ({named}); probability of as many by chance {p:.2g}",
    )


def chance_of_pairs(pairs: int, classes: int, among: int | None = None) -> float:
    """The probability of at least so many mutual pairs if every class had a random confound among the others, of
    which there are `among` in all if some have none.

    Of c classes that choose among C any m disjoint pairs are mutual with probability (C−1)^{−2m}; with S_m the sum of
    that over all sets of m disjoint pairs, P(at least k) = Σ_{m≥k} (−1)^{m−k} binom(m−1, k−1) S_m.
    """
    if pairs == 0 or classes < 2:
        return 1.0
    others = (among or classes) - 1
    total, term = 0.0, 1.0
    for m in range(1, classes // 2 + 1):
        term *= (classes - 2 * m + 2) * (classes - 2 * m + 1) / (2 * m * others**2)
        if m >= pairs:
            total += (-1) ** (m - pairs) * float(special.comb(m - 1, pairs - 1)) * term
    return float(np.clip(total, 0.0, 1.0))
