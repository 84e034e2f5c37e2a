"""The figures of the page: the same charts that `classwise figure` writes for a paper, as SVG inside the page.

Drawn when the page is made, not when it is opened: the page needs no charting library (0.9 MB, and the right to run
text as code), and prints as it looks. Each mark carries its numbers as a label, which the page shows under the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from classwise import figures
from classwise.errors import UserError
from classwise.figures.style import Chart
from classwise.results import Audit

_INK = "currentColor"  # of the page: light, dark or printed
_LARGER = 1.7  # times its size in a paper, to which a chart may grow
_BLACK = '"#000000"'  # of the palette, which a dark page would swallow


@dataclass(frozen=True)
class Told:
    """A figure by name, the section of the page it belongs to, and what is said above it."""

    figure: str
    section: str
    title: str
    about: str


_OF_AUDITS = (
    Told(
        "forest",
        "intervals",
        "Every class, with intervals that hold together",
        "Intervals are widened so that all of them hold at once: classes whose intervals do not meet differ beyond "
        "chance.",
    ),
    Told(
        "gap",
        "intervals",
        "What the attack costs each class",
        "Accuracy on clean images beside accuracy under attack: the wider the gap, the more a class loses.",
    ),
    Told(
        "curve",
        "curves",
        "Robustness against the strength of the attack",
        "From clean images to the largest radius, shaded from the weakest to the strongest class; dashed: all images.",
    ),
    Told(
        "scatter",
        "comparison",
        "Average against weakest class",
        "Up and to the right is better. A run that rises without moving left helps its weakest class at no cost.",
    ),
)

_OF_TRAININGS = (
    Told(
        "epochs",
        "training",
        "Robustness of the classes over the epochs",
        "On held-out images, shaded from the weakest to the strongest class; dashed: all images.",
    ),
    Told(
        "class_state",
        "training",
        "What the method kept of each class",
        "Weights, margins or temperatures of the classes, as they were in each epoch.",
    ),
)


def of_audits(audits: Mapping[str, Audit]) -> dict[Told, str]:
    """What the audits can be drawn as: intervals always, curves along several radii, a scatter of several runs."""
    curved = {name: audit for name, audit in audits.items() if audit.has_curve}
    of = {"curve": curved, "scatter": audits if len(audits) > 1 else {}}
    return _drawn(_OF_AUDITS, lambda figure: figures.from_runs(figure, of.get(figure, audits)))


def of_trainings(histories: Mapping[str, pd.DataFrame]) -> dict[Told, str]:
    """How trainings went: robustness by class over the epochs, and the state a method kept of each class."""
    return _drawn(_OF_TRAININGS, lambda figure: figures.from_histories(figure, histories))


def _drawn(charts: Sequence[Told], make: Callable[[str], Chart]) -> dict[Told, str]:
    """The drawing of each chart whose figure finds in the runs what it needs."""
    made = {}
    for told in charts:
        try:
            made[told] = svg(make(told.figure), told.figure)
        except UserError:
            continue
    return made


def svg(chart: Chart, name: str) -> str:
    """A drawing to stand inside a page: no background, the page's ink, and identifiers no other drawing has."""
    import vl_convert

    specification = figures.styled(chart, background="transparent", ink=_INK).to_dict(validate=False)
    drawn = vl_convert.vegalite_to_svg(json.loads(json.dumps(specification).replace(_BLACK, json.dumps(_INK))))
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawn)
    return re.sub(r'width="([\d.]+)" height="[\d.]+"', _widest, drawn, count=1)


def _widest(size: re.Match[str]) -> str:
    """As wide as the page, up to letters of a size one reads across a room."""
    return f'style="max-width:{_LARGER * float(size[1]):.0f}px"'
