"""The figures of the page: the same charts that `classwise figure` writes for a paper, as SVG inside the page.

Drawn when the page is made, not when it is opened: the page needs no charting library (0.9 MB, and the right to run
text as code), and prints as it looks. Each mark carries its numbers as a label, which the page shows under the pointer.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from classwise.core.csv_files import visible
from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import GroupComparison
from classwise.results.repair_result import RepairResult
from classwise.show import figures
from classwise.show.figures import class_state
from classwise.show.figures.style import Chart, look
from classwise.show.figures.width import fitted

_INK = "currentColor"  # of the page: light, dark or printed
_WIDE = 680.0  # points of the whole width of the page
_BLACK = '"#000000"'  # of the palette, invisible on a dark page


@dataclass(frozen=True)
class PageFigure:
    """A figure by name, the section of the page it belongs to, its title and a sentence about it."""

    figure: str
    section: str
    title: str
    about: str


_OF_AUDITS = (
    PageFigure(
        "forest",
        "intervals",
        "Every class, with simultaneous confidence intervals",
        "The intervals hold for all classes at once: classes whose intervals do not overlap differ beyond chance.",
    ),
    PageFigure(
        "gap",
        "intervals",
        "What the attack costs each class",
        "Clean accuracy and robust accuracy: the wider the gap, the more a class loses.",
    ),
    PageFigure(
        "curve",
        "curves",
        "Robust accuracy against the radius of the attack",
        "From clean images to the largest radius; the range of the classes is shaded, the dashed line is all images.",
    ),
    PageFigure(
        "scatter",
        "comparison",
        "Average against worst class",
        "Up and to the right is better. A run that is higher but not further left helps its worst class at no cost.",
    ),
)

_OF_TRAININGS = (
    PageFigure(
        "epochs",
        "training",
        "Robust accuracy of the classes over the epochs",
        "On held-out images; the range of the classes is shaded, the dashed line is all images, the vertical line the "
        "epoch whose model was selected.",
    ),
    PageFigure(
        "class_state",
        "training",
        "Class-wise state of the method",
        "Weights, margins or temperatures of the classes in each epoch.",
    ),
)


_OF_REPAIRS = (
    PageFigure(
        "front",
        "repair",
        "Worst class against average of every change tried",
        "On the calibration images; diamonds are the model before and after on the images that judge.",
    ),
)


_OF_GROUPS = (
    PageFigure(
        "forest",
        "seeds",
        "Difference of each group from the control",
        "Over seeds and images; an interval that does not contain 0 may still not be decided once all tests are "
        "corrected for.",
    ),
)


@dataclass(frozen=True)
class Drawing:
    """A figure of the page, drawn; or why it could not be."""

    figure: PageFigure
    svg: str = ""
    problem: str = ""


def of_audits(audits: Mapping[str, Audit]) -> list[Drawing]:
    """The figures of audits: intervals always, curves along several radii, a scatter plot of several runs."""
    curved = {name: audit for name, audit in audits.items() if audit.has_curve}
    of = {"curve": curved, "scatter": audits if len(audits) > 1 else {}}
    runs = {figure: of.get(figure.figure, audits) for figure in _OF_AUDITS}
    return [_draw(figure, figures.from_runs, own) for figure, own in runs.items() if own]


def of_training(name: str, history: pd.DataFrame, place: int = 0) -> list[Drawing]:
    """The figures of a training, as wide as the page: robustness by class over the epochs, and each class-wise state
    that changed. place: the training's among those of the page."""
    epochs, state = _OF_TRAININGS
    drawn = [_draw(epochs, _untitled, {name: history}, f"epochs{place}")]
    for kind in class_state.moving(history):
        make = functools.partial(_untitled, state=(kind,))
        drawn.append(_draw(replace(state, title=f"{state.title}: {kind}"), make, {name: history}, f"{kind}{place}"))
    return drawn


def _untitled(figure: str, histories: Mapping[str, pd.DataFrame], **options: Any) -> Chart:
    (history,) = histories.values()
    return figures.from_histories(figure, {"": history}, **options).properties(title="")


def of_repairs(repairs: Mapping[str, RepairResult]) -> list[Drawing]:
    """The figures of repairs: the changes tried, a figure for each repair."""
    drawn = []
    for figure in _OF_REPAIRS:
        for place, (name, repair) in enumerate(repairs.items()):
            titled = figure if len(repairs) == 1 else replace(figure, title=f"{name}: {figure.title}")
            drawn.append(_draw(titled, figures.from_repairs, {name: repair}, f"{figure.figure}{place}"))
    return drawn


def of_groups(groups: GroupComparison | None) -> list[Drawing]:
    """The figures of a comparison over seeds, of those metrics that are in percent."""
    if groups is None:
        return []
    columns = tuple(name for name, shown in groups.shown.items() if shown.unit != "number")
    make = functools.partial(figures.from_groups, columns=columns)
    return [_draw(figure, make, groups, f"{figure.figure}-groups") for figure in _OF_GROUPS if columns]


def _draw(figure: PageFigure, make: Callable[..., Chart], runs: Any, identifier: str | None = None) -> Drawing:
    """The figure of these runs, or why they do not have what it needs. identifier: where there are several of it."""
    try:
        return Drawing(figure, svg=svg(make(figure.figure, runs), identifier or figure.figure))
    except UserError as error:
        return Drawing(figure, problem=str(error))


def of_study(charts: Mapping[str, Mapping[str, Any] | str]) -> list[Drawing]:
    """The figures of a study by name: the charts of Vega-Lite that it left; of a study of an earlier version the
    drawings themselves, as pictures, of which nothing can run."""
    made = []
    for place, (name, chart) in enumerate(charts.items()):
        figure = PageFigure(name, "figures", heading(name), "")
        if isinstance(chart, str):
            data = base64.b64encode(chart.encode()).decode()
            made.append(Drawing(figure, svg=f'<img alt="" src="data:image/svg+xml;base64,{data}">'))
            continue
        try:
            made.append(Drawing(figure, svg=_inside(chart, f"figure{place}")))
        except ValueError as error:  # of the renderer: the file was changed
            made.append(Drawing(figure, problem=str(error)))
    return made


def heading(name: str) -> str:
    """The name of a table or a figure as a heading; the names of models and classes in it stay as they are."""
    text = name.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def svg(chart: Chart, name: str) -> str:
    """A figure for use inside a page: no background, the page's text colour, and unique identifiers."""
    return _inside(chart.to_dict(validate=False), name)


def _inside(chart: Mapping[str, Any], name: str) -> str:
    specification = {**chart, "config": look(background="transparent", ink=_INK)}
    specification["config"].setdefault("mark", {})["aria"] = False  # marks are read that have their numbers as text
    coloured = json.loads(json.dumps(specification).replace(_BLACK, json.dumps(_INK)))
    drawn = _as_wide_as_the_page(visible(coloured))
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawn)
    size = re.search(r'width="([\d.]+)" height="[\d.]+"', drawn)
    assert size is not None, "the renderer writes the size into the first tag"
    return drawn.replace(size[0], "", 1)  # as wide as the page


def _as_wide_as_the_page(specification: dict[str, Any]) -> str:
    """The drawing of a chart whose plots are stretched until it is as wide as the page; letters keep their size."""
    import vl_convert

    try:
        return fitted(specification, _WIDE)[1]
    except UserError:  # of very many panels; it is as wide as it has to be
        return str(vl_convert.vegalite_to_svg(specification))
