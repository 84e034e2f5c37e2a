"""What another background does to a class: the paper's claims and their tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from classwise.core.format import percent
from classwise.core.records import Records
from classwise.stats.correlation import rank_test
from classwise.stats.intervals import Estimate
from classwise.studies.background.tables import LISTED, compared, misclassified_as, ranked
from classwise.studies.background.views import KINDS, ORIGINAL, Kind, View, Views, behind_own_masks
from classwise.studies.runner.result import Claim
from classwise.studies.shared.together import BOOTSTRAP, PAIRED, RANKS, interval_between, resampled
from classwise.studies.shared.verdicts import LEVEL, Ruling, Sample, all_held, exceeds, images, tails

_TABLE, _FIGURE = "tian2021:table4", "tian2021:figure6"


def claims(models: Mapping[str, Views], name: str, adjusted: str | None) -> Iterator[Claim]:
    """Of every model but the adjusted one, and what that adds to the first."""
    for model, own in models.items():
        if model != adjusted:
            yield _raises(model, own, name)
            yield from _colours(model, own, name)
            yield _natural(model, own, name)
    if adjusted is not None:
        yield _adjusted(models, name, adjusted)


def _raises(model: str, own: Views, name: str) -> Claim:
    first = behind_own_masks(own)[0]
    shuffled, shapes = View(first, "shuffled").name, View(first, "random").name
    gain, beyond, blind = (_gain(own[against], own[first], name) for against in (ORIGINAL, shuffled, shapes))
    found = misclassified_as({model: {ORIGINAL: own[ORIGINAL], first: own[first]}}, name)
    others = "; no images of other classes"
    if len(found):
        row = found[found["prediction"] == "adversarial"].iloc[0]
        others = f"; other classes' images misclassified as {name}: {row['before (%)']:.1f}% to {row['after (%)']:.1f}%"
    return Claim(
        _TABLE,
        f"A {first} background makes {name} more robust ({model}), and more so behind the object's own outline than "
        f"behind another image's.",
        all_held(gain.above(), beyond.above()),
        f"{gain}; against shuffled masks {beyond}; against random masks {blind}{others}",
    )


def _colours(model: str, own: Views, name: str) -> Iterator[Claim]:
    first, *others = behind_own_masks(own)
    if others:
        gains = {view: _gain(own[view], own[first], name, 1 - LEVEL / len(others)) for view in others}
        yield Claim(
            _TABLE,
            f"It is {first} that makes {name} more robust ({model}): other backgrounds do so less.",
            all_held(
                _gain(own[ORIGINAL], own[first], name).above(),
                *(gain.above(", Bonferroni over the backgrounds") for gain in gains.values()),
            ),
            "; ".join(f"against {view} {gain}" for view, gain in gains.items()),
        )


def _natural(model: str, own: Views, name: str) -> Claim:
    """The difference of two differences of the same images, resampled together."""
    first = behind_own_masks(own)[0]
    runs = [own[view][kind] for kind in KINDS for view in (ORIGINAL, first)]
    drawn = resampled(runs)[:, :, runs[0].class_names.index(name)]
    low, high = interval_between(drawn)
    natural, adversarial = (_gain(own[ORIGINAL], own[first], name, kind=kind) for kind in KINDS)
    more = 100 * (adversarial.value - natural.value)
    return Claim(
        _TABLE,
        f"A {first} background changes adversarial predictions of {name} more than natural ones ({model}).",
        exceeds(low, high, test=BOOTSTRAP, sample=_images_of(adversarial.support)),
        f"adversarial {adversarial}; natural {natural}; {more:+.1f} more "
        + (f"({100 * low:+.1f} to {100 * high:+.1f})" if np.isfinite(low) else "(no interval)"),
    )


def _adjusted(models: Mapping[str, Views], name: str, adjusted: str) -> Claim:
    base = next(model for model in models if model != adjusted)
    first = behind_own_masks(models[base])[0]
    gain = _gain(models[base][first], models[adjusted][first], name)
    return Claim(
        _TABLE,
        f"On a {first} background the adjusted training ({adjusted}) makes {name} more robust still.",
        gain.above(),
        f"against {base} on {first} {gain}",
    )


def bright(model: str, own: Views, quality: pd.DataFrame, name: str) -> Claim:
    """Whether probability under attack goes with brightness, over all images of the class."""
    rows = ranked(own, quality, name)
    found = rank_test(rows["brightness"].to_numpy(), rows["attacked"].to_numpy())
    top, every = rows["brightness"].head(LISTED).mean(), rows["brightness"].mean()
    return Claim(
        _FIGURE,
        f"The brighter the background, the more robust an image of {name} ({model}).",
        tails(found.p_greater, found.p_less, test=RANKS, sample=_images_of(found.n)),
        f"{found}, {len(rows)} images; mean brightness of the "
        f"{min(LISTED, len(rows))} most robust {percent(top, 0)}, of all {percent(every, 0)}",
    )


class _Gain(Estimate):
    """A change of a class's accuracy on the same images, as a fraction."""

    def above(self, correction: str = "") -> Ruling:
        """Whether it is above 0; `correction` says what its level allows for."""
        return exceeds(self.low, self.high, test=PAIRED + correction, sample=_images_of(self.support))

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def _gain(
    before: Mapping[Kind, Records],
    after: Mapping[Kind, Records],
    name: str,
    confidence: float = 1 - LEVEL,
    kind: Kind = "adversarial",
) -> _Gain:
    row = compared(before[kind], after[kind], name, confidence)
    value, low, high = (float(row[column]) for column in ("difference", "low", "high"))
    return _Gain(value, low, high, int(row["n_first"]))


def _images_of(n: int) -> Sample:
    return images(n, "images of the class with a usable mask")
