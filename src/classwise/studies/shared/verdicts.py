"""When a claim held: only if a stated test, at a stated level and on enough images, says so.

    held                the test rejects in the claim's direction
    did not hold        it rejects in the other direction, or an equivalence test with a stated margin does
    not enough images   there are fewer than the test needs
    not decided here    anything else

A study passes the numbers of a test, never a verdict: `exceeds` and `falls_short` take an interval, `tails` the
p-values of both directions, `omnibus` the p-value of a test without direction. `all_held`, `agree`, `given`, `either`
and `contrary` make one ruling of several. The two directions of a test share the level: each has half of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from classwise.core.format import percent

Verdict = Literal["held", "did not hold", "not decided here", "not enough images"]

#: The probability of a false positive, both directions together.
LEVEL = 0.05
#: Images below which intervals from resampling and of paired shares are not reliable.
IMAGES = 20
#: Classes, or models, below which no permutation is as rare as LEVEL / 2: of 4 it is 1/24, of 5 it is 1/120.
CLASSES = 5

_CONTRARY: dict[Verdict, Verdict] = {"held": "did not hold", "did not hold": "held"}


@dataclass(frozen=True)
class Sample:
    """How many there are of what a test counts, and how many it needs."""

    have: int
    need: int = IMAGES
    unit: str = "images of each class"
    verdict: Verdict = "not enough images"

    def __str__(self) -> str:
        unit = re.sub(r"(image|error)s\b", r"\1", self.unit) if self.have == 1 else self.unit
        return f"{self.have} {unit}"


Samples: TypeAlias = "Sample | Sequence[Sample]"


@dataclass(frozen=True)
class Ruling:
    """A verdict, the test it rests on, and how many of what it counted; made by the functions of this module alone."""

    verdict: Verdict
    test: str
    sample: str = ""

    @property
    def held(self) -> bool:
        return self.verdict == "held"


def images(have: float, unit: str = "images of each class") -> Sample:
    """A sample of images; those of the smallest class if the claim is about classes."""
    return Sample(int(have), IMAGES, unit)


def classes(have: int, unit: str = "classes") -> Sample:
    """A sample of classes or models; more images do not make it larger."""
    return Sample(have, CLASSES, unit, "not decided here")


def exceeds(low: float, high: float, threshold: float = 0.0, *, test: str, sample: Samples) -> Ruling:
    """Whether something with this interval at 1 − LEVEL is above the threshold; NaN decides nothing."""
    verdict: Verdict = "held" if low > threshold else "did not hold" if high < threshold else "not decided here"
    if math.isnan(low) or math.isnan(high):
        verdict, test = "not decided here", f"{test}, which has no interval here"
    return _ruling(verdict, f"{test}, two-sided {percent(LEVEL, 0)}", sample)


def falls_short(low: float, high: float, threshold: float = 0.0, *, test: str, sample: Samples) -> Ruling:
    """Whether something with this interval is below the threshold."""
    return exceeds(-high, -low, -threshold, test=test, sample=sample)


def tails(p: float, p_contrary: float, *, test: str, sample: Samples) -> Ruling:
    """By the one-sided p-values of the claim's direction and of the other one."""
    half = LEVEL / 2
    verdict: Verdict = "held" if p <= half else "did not hold" if p_contrary <= half else "not decided here"
    return _ruling(verdict, f"{test}, two-sided {percent(LEVEL, 0)}", sample)


def omnibus(p: float, *, test: str, sample: Samples) -> Ruling:
    """By a p-value that is small if the claim is true and says nothing otherwise."""
    return _ruling("held" if p <= LEVEL else "not decided here", f"{test}, {percent(LEVEL, 0)}", sample)


def undecided(reason: str) -> Ruling:
    """Of a claim that cannot be tested here."""
    return Ruling("not decided here", f"none: {reason}")


def all_held(*rulings: Ruling) -> Ruling:
    """Of a claim with several parts: one that did not hold decides, and it held only if all did."""
    verdicts = [ruling.verdict for ruling in rulings]
    if "did not hold" in verdicts:
        return _of("did not hold", rulings)
    return agree(*rulings)


def agree(*rulings: Ruling) -> Ruling:
    """Decided if all agree."""
    verdicts = {ruling.verdict for ruling in rulings}
    return _of(verdicts.pop(), rulings) if len(verdicts) == 1 else _open(rulings)


def given(condition: Ruling, then: Ruling) -> Ruling:
    """Of a claim with a precondition: a gain can only vanish if there was one."""
    return then if condition.held else _open([condition, then])


def either(for_it: Ruling, against_it: Ruling) -> Ruling:
    """Of a claim with one test for it and another for its contrary, which decides if the first does not."""
    if for_it.held:
        return for_it
    return contrary(against_it) if against_it.held else _open([for_it, against_it])


def contrary(ruling: Ruling) -> Ruling:
    """Of the claim's negation."""
    return replace(ruling, verdict=_CONTRARY.get(ruling.verdict, ruling.verdict))


def _ruling(verdict: Verdict, test: str, sample: Samples) -> Ruling:
    samples = [sample] if isinstance(sample, Sample) else sample
    counted = ", ".join(map(str, samples))
    for own in samples:
        if own.have < own.need:
            return Ruling(own.verdict, f"{test}: {own}, {own.need} are needed", counted)
    return Ruling(verdict, test, counted)


def _open(rulings: Sequence[Ruling]) -> Ruling:
    """Not decided; too few images is named as the reason where it is one, since more images help."""
    few = any(ruling.verdict == "not enough images" for ruling in rulings)
    return _of("not enough images" if few else "not decided here", rulings)


def _of(verdict: Verdict, rulings: Sequence[Ruling]) -> Ruling:
    """The verdict that several rulings lead to, with all their tests and samples."""
    tests, samples = (dict.fromkeys(texts) for texts in zip(*((own.test, own.sample) for own in rulings), strict=True))
    return Ruling(verdict, "; ".join(tests), "; ".join(filter(None, samples)))
