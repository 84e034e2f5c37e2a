"""Every mark of every figure says what it shows: in the chart, and under the pointer of a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from board_runs import write_entry
from browser import opened, texts
from classwise.core.records import CLEAN, Records
from classwise.core.repair_folder import RepairFolder
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import compare_groups
from classwise.results.repair_result import RepairResult, tried
from classwise.show import figures
from classwise.show.figures import background, temperature
from classwise.show.page import build as build_page
from classwise.show.page import charts
from page_runs import NAMES, write_curve, write_run

pytestmark = pytest.mark.slow  # draws every figure

#: Marks that show no data, by figure: what kind they are. Text, which says what it is, needs no tooltip anywhere.
DECORATION = {
    "class_state": {"rule"},  # from the end of a line to its name
    "curve": {"rule"},
    "epochs": {"rule"},
    "sweep": {"rule"},
    "confusion": {"rule"},  # between superclasses
    "misclassified": {"rule"},
    "radar": {"line", "rule"},  # rings and spokes, which are its axes
}

HISTORY = pd.DataFrame(
    {"epoch": [1, 2, 3], "best_epoch": [1, 2, 2], "robust": [0.3, 0.5, 0.4]}
    | {"robust:cat": [0.2, 0.116, 0.3], "robust:dog": [0.4, 0.9, 0.5], "robust:ship": [0.3, 0.5, 0.4]}
    | {"weight:cat": [1.0, 1.1, 1.2], "weight:dog": [1.0, 0.9, 0.8], "weight:ship": [1.0, 1.0, 1.0]}
)
CLASSES = ("cat", "dog", "ship")


def study() -> dict[str, pd.DataFrame]:
    """The tables that studies leave, of one model and three classes."""
    pairs = pd.DataFrame(itertools.product(CLASSES, CLASSES), columns=["true", "predicted"])
    classes = pd.DataFrame({"class": CLASSES, "accuracy": [0.2, 0.5, 0.8], "low": [0.1, 0.4, 0.7]})
    classes = classes.assign(high=classes["low"] + 0.2, norm=[1.0, 1.5, 1.3])

    def each(**columns: Any) -> pd.DataFrame:
        return classes.merge(pd.DataFrame(itertools.product(*columns.values()), columns=[*columns]), how="cross")

    images = each(column=["clean", "adversarial"]).rename(columns={"class": "row"})
    tables = {
        "background": pairs.merge(pd.DataFrame({"kind": ["clean", "pgd"]}), how="cross").assign(
            images=4, background=pairs["true"].map({"cat": "red", "dog": "red", "ship": "lime"}).repeat(2).tolist()
        ),
        "confidence_path": each(step=[1, 2], attack=["pgd"]).assign(probability=1 / 3, true_class="cat"),
        "corruptions": each(corruption=["fog", "snow"], severity=[1, 5]),
        "corruptions_attacks": each(attack=["pgd"]),
        "features": each(kind=["clean", "pgd"]).assign(x=[1, 2, 3, 4, 5, 6], y=[2, 1, 3, 2, 1, 3], group="animals"),
        "panels": images.assign(image=[np.zeros((2, 2), np.uint8)] * 6, caption=["", "dog"] * 3),
        "similarity": pairs.assign(cosine=0.5, share=np.arange(9) / 20),
        "sweep": each(value=[1, 2, 4]).assign(setting="β"),
        "temperature": each(inv_temperature=[1, 5], variant=["float32", "sound"])[
            lambda table: table["class"] == "cat"
        ],
        "weight_norm": classes,
    }
    return {name: table.assign(model="madry") for name, table in tables.items()}


def write_repair(folder: Path) -> RepairResult:
    """A finished repair with four changes, of which two are on the front."""
    counts = {0: (8, 20, 36, 30), 1: (12, 20, 34, 29), 2: (20, 18, 30, 20), 3: (9, 18, 36, 29)}
    run = RepairFolder(folder)
    audits = {number: write_run(run.round(number), right, images=False) for number, right in counts.items()}
    rows = [tried(number, "step", {}, audit.rows(), audit.rows(CLEAN), 0.95) for number, audit in audits.items()]
    rounds = pd.DataFrame(rows).assign(front=[False, True, True, False], chosen=[False, True, False, False])
    before, after = (write_run(path, right) for path, right in ((run.before, counts[0]), (run.after, counts[1])))
    by_round = pd.concat([audit.by_class().assign(number=number) for number, audit in audits.items()])
    bias = dict.fromkeys(NAMES, 0.1)
    result = RepairResult(before=before, after=after, rounds=rounds, by_round=by_round, chosen=1, bias=bias)
    result.save(folder)
    return result


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The charts of every figure, from all that it is drawn from, small and large."""
    root = tmp_path_factory.mktemp("figures")
    runs = {name: write_run(root / name, right) for name, right in (("a", (8, 20, 36, 30)), ("b", (20, 18, 30, 31)))}
    own = runs["a"].rows()
    sure = Audit(Records(own.frame, own.meta, np.eye(len(NAMES))[own.prediction]))
    curve = write_curve(root / "curve", [(30, 40, 40, 40), (20, 35, 40, 38)])
    names = [f"class {number}" for number in range(160)]
    many = write_run(root / "many", [number % 41 for number in range(160)], names, images=False)
    members = {f"group {number}": tuple(names[number:20:4]) for number in range(4)}
    few = write_run(root / "few", [number % 41 for number in range(20)], names[:20], members, images=False)
    seeds = {
        name: {str(seed): write_entry(root / f"{name}{seed}", np.full(10, 20 + place + seed)) for seed in range(2)}
        for place, name in enumerate(("control", "other"))
    }
    audits: dict[str, list[Mapping[str, Audit]]] = {"curve": [{"run": curve}], "confidence": [{"run": sure}]}
    audits |= {name: [runs, {"few": few}, {"many": many}] for name in ("confusion", "misclassified")}
    makers: dict[figures.Source, Any] = {
        "audits": lambda name: [figures.from_runs(name, given) for given in audits.get(name, [runs])],
        "histories": lambda name: [figures.from_histories(name, {"run": HISTORY})],
        "repairs": lambda name: [figures.from_repairs(name, {"run": write_repair(root / "repair")})],
        "studies": lambda name: [figures.from_studies(name, {"study": study()})],
        "groups": lambda name: [
            figures.from_groups(name, compare_groups(seeds, "control", columns=("worst", "average")))
        ],
    }
    return {name: [c for kind in figures.sources(name) for c in makers[kind](name)] for name in figures.names()}


def marks(view: Mapping[str, Any], encoding: Mapping[str, Any] | None = None) -> Iterator[tuple[dict[str, Any], Any]]:
    """Every mark of a chart with its encoding, that of the layers around it included."""
    whole = {**(encoding or {}), **view.get("encoding", {})}
    if "mark" in view:
        yield view["mark"], whole
    for part in itertools.chain.from_iterable(view.get(key, ()) for key in ("layer", "hconcat", "vconcat", "concat")):
        yield from marks(part, whole)


def is_described(mark: Mapping[str, Any], encoding: Mapping[str, Any]) -> bool:
    """Whether a chart shows two texts or more of the mark, and a page does, which reads descriptions."""
    tooltip = encoding.get("tooltip", mark.get("tooltip", ()))
    several = "; " in tooltip if isinstance(tooltip, str) else len(tooltip) > 1
    return several and mark.get("aria") is True and ("description" in encoding or "description" in mark)


@pytest.mark.parametrize("name", figures.names())
def test_every_mark_has_a_tooltip(drawn: dict[str, list[Any]], name: str) -> None:
    found = [pair for chart in drawn[name] for pair in marks(chart.to_dict())]
    assert any(is_described(*pair) for pair in found)
    bare = [mark for mark, encoding in found if mark["type"] != "text" and not is_described(mark, encoding)]
    assert {mark["type"] for mark in bare} == DECORATION.get(name, set())
    assert all(mark["aria"] is False for mark in bare), "decoration is not read out either"


def labels(chart: Any) -> list[str]:
    """What the page shows under the pointer."""
    drawing = charts.svg(chart, "figure")
    return [part.partition('"')[0] for part in drawing.split('aria-label="')[1:] if "; " in part.partition('"')[0]]


def test_the_rule_of_the_selected_epoch_says_which_and_its_worst_class(drawn: dict[str, list[Any]]) -> None:
    assert "selected epoch: 2; worst class: cat; its robust accuracy: 11.6%" in labels(drawn["epochs"][0])
    unknown = figures.epochs.draw(HISTORY.assign(best_epoch=[np.nan, np.nan, 4]))
    assert "selected epoch: 4; robust accuracy: not measured" in labels(unknown)
    assert not any("selected" in label for label in labels(figures.epochs.draw(HISTORY.drop(columns="best_epoch"))))


def test_lines_say_where_they_begin_and_end(drawn: dict[str, list[Any]]) -> None:
    found = labels(drawn["epochs"][0])
    assert "class: cat; epoch: from 1 to 3; robust accuracy: from 20.0% to 30.0%" in found
    assert "class: all; epoch: from 1 to 3; robust accuracy: from 30.0% to 40.0%" in found
    table = study()["temperature"].iloc[::-1].assign(accuracy=[0.1, 0.2, 0.3, 0.4])  # from the largest 1/T down
    backwards = labels(temperature.draw(table))
    assert "model: madry; variant: float32; 1/T: from 1 to 5; robust accuracy: from 40.0% to 20.0%" in backwards
    assert "run: a; worst class: cat 20.0%; best class: ship &amp; sail 90.0%" in labels(drawn["radar"][0])


def test_the_front_says_what_it_joins(drawn: dict[str, list[Any]]) -> None:
    assert "front: worst class against average; changes: 2" in labels(drawn["front"][0])


def test_frames_of_backgrounds_leave_the_cells_in_reach() -> None:
    table = study()["background"]
    chart = background.draw(table, dict(zip(table["true"], table["background"], strict=True)))
    found = labels(chart)
    assert "background: red; classes: cat, dog" in found
    assert "true: cat; predicted: dog; images: 4; share: 33.3%" in found
    frames = [mark for mark, _ in marks(chart.to_dict()) if mark["type"] == "rect" and "stroke" in mark]
    assert frames
    assert all(mark["filled"] is False for mark in frames)


# ---- in a browser ------------------------------------------------------------------------------------------


#: A place on the screen where nothing lies over a mark.
SEEN = """
const mark = [...document.querySelectorAll(arguments[0])].find((one) => one.outerHTML.includes(arguments[1]));
mark.scrollIntoView({block: 'center', behavior: 'instant'});
if (!mark.getPointAtLength) {
  const box = mark.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}
const [length, screen] = [mark.getTotalLength(), mark.getScreenCTM()];
for (let share = 0.02; share < 1; share += 0.02) {
  const { x, y } = mark.getPointAtLength(share * length).matrixTransform(screen);
  if (document.elementFromPoint(x, y) === mark) return [x, y];
}
return null;
"""


def point_at(page: Any, selector: str, text: str, beside: int = 0) -> str:
    """The tooltip under the pointer at a mark of which this is a part, or so many pixels beside it."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    x, y = page.execute_script(SEEN, selector, text)
    actions = ActionBuilder(page)
    actions.pointer_action.move_to_location(1, 1)
    actions.pointer_action.move_to_location(round(x) + beside, round(y))
    actions.perform()
    (found,) = texts(page, "#tip")
    return found if page.find_element("id", "tip").is_displayed() else ""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tooltips")
    training = root / "training"
    training.mkdir()
    HISTORY.to_csv(training / "history.csv", index=False)
    write_repair(root / "repair")
    return build_page([root / "repair", training], root / "report.html").as_uri()


@pytest.mark.browser
def test_the_selected_epoch_and_the_front_under_the_pointer(browser: Any, address: str) -> None:
    page = opened(browser, address)
    said = "selected epoch: 2\nworst class: cat\nits robust accuracy: 11.6%"
    for beside in (0, 2):  # the rule is a pixel wide
        assert point_at(page, "#training .chart line", "selected epoch", beside) == said
    assert point_at(page, "#repair .chart path", "front: worst") == "front: worst class against average\nchanges: 2"
    assert page.get_log("browser") == []


@pytest.mark.browser
def test_text_does_not_hide_the_mark_below_it(browser: Any, address: str) -> None:
    page = opened(browser, address)
    assert point_at(page, ".chart text", "(cat to ").startswith("gap: robust accuracy\npoints: ")
