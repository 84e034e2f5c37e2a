"""When a claim held: only if a stated test, at a stated level and on enough images, says so.

    held                the test rejects in the claim's direction
    did not hold        it rejects in the other direction, or an equivalence test with a stated margin does
    does not apply      its precondition did not hold: there is no gain that could vanish
    not enough images   there are fewer than the test needs
    not decided here    anything else

A study passes the numbers of a test, never a verdict: `exceeds` and `falls_short` take an interval, `tails` the
p-values of both directions, `omnibus` the p-value of a test without direction; `undecided` and `inapplicable` take the
reason why there is no test. `all_held`, `agree`, `given`, `either` and `contrary` make one ruling of several. The two
directions of a test share the level: each has half of it.

What is not decided comes with the size that would decide it with a probability of 80%, if the effect is as large as
measured. A test statistic z grows with the square root of the sample n, so that size is n·((z_α + z_0.8)/z)².
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from scipy import special

from classwise.core.format import percent
from classwise.stats.intervals import POWER

Verdict = Literal["held", "did not hold", "does not apply", "not decided here", "not enough images"]

#: The probability of a false positive, both directions together.
LEVEL = 0.05
#: Images below which intervals from resampling and of paired shares are not reliable.
IMAGES = 20
#: Classes, or models, below which no permutation is as rare as LEVEL / 2: of 4 it is 1/24, of 5 it is 1/120.
CLASSES = 5

_FAR = 100.0  # times as many: beyond that the size is no more than a guess

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
    """A verdict, the test it rests on, and how many of what it counted; made by the functions of this module alone.

    needs: how many would decide what is not decided. factor: how many times as many that are as there were.
    """

    verdict: Verdict
    test: str
    sample: str = ""
    needs: str = ""
    factor: float = field(default=math.nan, compare=False, repr=False)

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
    z = float(special.ndtri(1 - LEVEL / 2))
    effect = z * abs((low + high) / 2 - threshold) / ((high - low) / 2) if high > low else math.nan
    return _ruling(verdict, f"{test}, two-sided {percent(LEVEL, 0)}", sample, z, effect)


def falls_short(low: float, high: float, threshold: float = 0.0, *, test: str, sample: Samples) -> Ruling:
    """Whether something with this interval is below the threshold."""
    return exceeds(-high, -low, -threshold, test=test, sample=sample)


def tails(p: float, p_contrary: float, *, test: str, sample: Samples, needs: str = "") -> Ruling:
    """By the one-sided p-values of the claim's direction and of the other one. needs: what would decide it, where that
    is known better than from the size of the sample."""
    half = LEVEL / 2
    verdict: Verdict = "held" if p <= half else "did not hold" if p_contrary <= half else "not decided here"
    effect = float(special.ndtri(1 - min(p, p_contrary)))
    found = _ruling(verdict, f"{test}, two-sided {percent(LEVEL, 0)}", sample, special.ndtri(1 - half), effect)
    return replace(found, needs=needs) if needs and found.needs else found


def omnibus(p: float, *, test: str, sample: Samples) -> Ruling:
    """By a p-value that is small if the claim is true and says nothing otherwise."""
    verdict: Verdict = "held" if p <= LEVEL else "not decided here"
    return _ruling(verdict, f"{test}, {percent(LEVEL, 0)}", sample, special.ndtri(1 - LEVEL), special.ndtri(1 - p))


def undecided(reason: str) -> Ruling:
    """Of a claim that cannot be tested here."""
    return Ruling("not decided here", f"none: {reason}")


def inapplicable(reason: str, sample: Sample) -> Ruling:
    """Of a claim whose precondition these images rule out: where all classes are at 0%, none is less robust."""
    return _ruling("does not apply", f"none: {reason}", sample, math.nan, math.nan)


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
    if condition.verdict == "did not hold":
        return replace(condition, verdict="does not apply")
    return then if condition.held else _open([condition, then])


def either(for_it: Ruling, against_it: Ruling) -> Ruling:
    """Of a claim with one test for it and another for its contrary, which decides if the first does not."""
    if for_it.held:
        return for_it
    if against_it.held:
        return contrary(against_it)
    easier = min((own for own in (for_it, against_it) if own.needs), key=lambda own: own.factor, default=for_it)
    return replace(_open([for_it, against_it]), needs=easier.needs, factor=easier.factor)


def contrary(ruling: Ruling) -> Ruling:
    """Of the claim's negation."""
    return replace(ruling, verdict=_CONTRARY.get(ruling.verdict, ruling.verdict))


def _ruling(verdict: Verdict, test: str, sample: Samples, z: float, effect: float) -> Ruling:
    """z: what the test statistic must reach. effect: what it is, as a quantile of the normal distribution."""
    samples = [sample] if isinstance(sample, Sample) else sample
    counted = ", ".join(map(str, samples))
    for own in samples:
        if own.have < own.need:
            return Ruling(own.verdict, f"{test}: {own}, {own.need} are needed", counted)
    if verdict != "not decided here" or math.isnan(effect):
        return Ruling(verdict, test, counted)
    factor = ((z + special.ndtri(POWER)) / effect) ** 2 if effect > 0 else math.inf
    # Where classes or models are counted beside images, more images do not help.
    counts = next((own for own in samples if own.need == CLASSES), samples[0])
    return Ruling(verdict, test, counted, _enough(counts, factor), factor)


def _enough(counts: Sample, factor: float) -> str:
    """So many times as many as there are, in two digits."""
    if factor > _FAR:
        return f"more than {_FAR:g} times as many {counts.unit}"
    size = math.ceil(counts.have * factor)
    digits = max(len(str(size)) - 2, 0)
    return f"about {math.ceil(size / 10**digits) * 10**digits:,} {counts.unit}"


def _open(rulings: Sequence[Ruling]) -> Ruling:
    """Not decided; too few images is named as the reason where it is one, since more images help."""
    few = any(ruling.verdict == "not enough images" for ruling in rulings)
    return _of("not enough images" if few else "not decided here", rulings)


def _of(verdict: Verdict, rulings: Sequence[Ruling]) -> Ruling:
    """The verdict that several rulings lead to, with all their tests and samples."""
    tests, samples = (dict.fromkeys(texts) for texts in zip(*((own.test, own.sample) for own in rulings), strict=True))
    hardest = max((own for own in rulings if own.needs), key=lambda own: own.factor, default=None)
    needs, factor = ("", math.nan) if hardest is None or verdict in _CONTRARY else (hardest.needs, hardest.factor)
    return Ruling(verdict, "; ".join(tests), "; ".join(filter(None, samples)), needs, factor)
