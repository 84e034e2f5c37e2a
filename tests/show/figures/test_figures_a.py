"""What the figures of audits and trainings show, the sizes of their files, and what they say if they cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from statsmodels.stats.proportion import proportion_confint

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, Records
from classwise.core.run_folder import TrainingFolder
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show import figures
from classwise.show.figures import class_state, confusion, curve, epochs, gap, intervals, lines, misclassified, style

NAMES = ("cat", "dog", "car", "ship")
GROUPS = {"vehicles": ("ship", "car"), "animals": ("dog", "cat")}
COUNTS = np.array([[2, 6, 1, 1], [3, 5, 2, 0], [0, 0, 8, 2], [0, 1, 0, 9]])

AuditOf = Callable[..., Audit]


def records(counts: np.ndarray, names: tuple[str, ...] = NAMES, **meta: Any) -> Records:
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    rest = dict.fromkeys(("confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    frame = pd.DataFrame({"index": np.arange(len(label)), "label": label, "attack": "pgd", "eps": 0.03, **rest})
    return Records(frame.assign(prediction=prediction), Meta(class_names=names, attacks={"pgd": AttackInfo()}, **meta))


def audit(counts: np.ndarray = COUNTS, names: tuple[str, ...] = NAMES, **meta: Any) -> Audit:
    return Audit(records(counts, names, **meta))


def tables(chart: Any) -> list[pd.DataFrame]:
    """The data of every part of a chart; that the chart is a valid one is checked on the way."""
    return [pd.DataFrame(json.loads(text)) for text in chart.to_dict()["datasets"].values()]


def columns(table: pd.DataFrame) -> set[str]:
    """The columns of a table but those of its tooltips."""
    return {str(column) for column in table if not str(column).startswith("tip")}


def table_with(chart: Any, *columns: str) -> pd.DataFrame:
    return next(table for table in tables(chart) if {*columns} <= {*table.columns})


def domain(chart: Any, channel: str) -> list[str]:
    """The explicit domain of a channel, in whichever layer it is."""
    for layer in chart.to_dict()["layer"]:
        if "domain" in layer["encoding"].get(channel, {}).get("scale", {}):
            found: list[str] = layer["encoding"][channel]["scale"]["domain"]
            return found
    raise AssertionError(f"no domain of {channel}")


# ---- choosing a figure -------------------------------------------------------------------------------------


def test_a_figure_that_is_not_there_is_named_with_its_near_miss() -> None:
    with pytest.raises(UserError, match="unknown figure 'confusions'; did you mean 'confusion'"):
        figures.describe("confusions")


def test_audits_and_histories_are_not_mistaken_for_each_other() -> None:
    with pytest.raises(UserError, match=r"epochs is drawn from run folders of trainings \(history.csv\), not from"):
        figures.from_runs("epochs", {"run": audit()})
    with pytest.raises(UserError, match="forest is drawn from run folders of audits or groups of audits"):
        figures.from_histories("forest", {"run": pd.DataFrame({"epoch": [1]})})


def test_options_may_be_text_as_typed() -> None:
    chart = figures.from_runs("forest", {"run": audit()}, most="2", order="dog|cat|car|ship")
    assert domain(chart, "y") == ["dog", "… 2 more …", "ship"]


# ---- look and files ----------------------------------------------------------------------------------------


def lightness(colour: str) -> float:
    """CIE L*, 0 to 100."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def test_neighbouring_colours_differ_in_grey() -> None:
    grey = [lightness(colour) for colour in style.PALETTE]
    assert min(abs(np.diff(grey))) > 10


def test_shapes_and_dashes_go_with_every_colour() -> None:
    assert len(style.PALETTE) == len({*style.SHAPES}) == len({tuple(dash) for dash in style.DASHES})
    assert style.run_scale([str(n) for n in range(9)]).to_dict()["range"][8] == style.PALETTE[0]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "points"), [("column", 234), ("page", 487), (301.5, 301.5)])
def test_a_figure_is_exactly_as_wide_as_asked(width: Any, points: float, tmp_path: Path) -> None:
    chart = figures.from_runs("confusion", {"run": audit()})
    drawn = figures.save(chart, tmp_path / "figure.svg", width).read_text()
    size = re.search(r'width="([\d.]+)" height="([\d.]+)" viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    assert size is not None
    shown, _, own, _ = map(float, size.groups())
    assert shown == points
    assert own == pytest.approx(points, rel=0.011)  # letters keep their size but for a percent
    with Image.open(figures.save(chart, tmp_path / "figure.png", width)) as image:
        assert image.width == pytest.approx(4 * points, abs=1)


@pytest.mark.slow
def test_a_square_stays_square_and_letters_keep_their_size(tmp_path: Path) -> None:
    chart = figures.from_runs("confusion", {"run": audit()})
    small, large = (
        json.loads(figures.save(chart, tmp_path / "figure.json", width).read_text()) for width in (160, 640)
    )
    assert small["width"] == pytest.approx(small["height"])
    assert large["width"] == pytest.approx(large["height"])
    assert large["width"] > 4 * small["width"]  # labels take the same from both
    assert small["config"]["axis"] == large["config"]["axis"]


@pytest.mark.slow
def test_panels_side_by_side_shrink_together(tmp_path: Path) -> None:
    chart = figures.from_runs("gap", {"one": clean_and_robust(), "two": clean_and_robust()})
    made = json.loads(figures.save(chart, tmp_path / "figure.json", "page").read_text())
    widths = [panel["width"] for panel in made["concat"]]
    assert widths[0] == widths[1] < 220


def test_a_title_wider_than_the_plots_does_not_hide_how_wide_they_have_to_be(tmp_path: Path) -> None:
    chart = figures.from_runs(
        "gap", {"a long name of a model and of all the attacks it was audited with " * 2: clean_and_robust()}
    )
    made = json.loads(figures.save(chart, tmp_path / "figure.json", 900).read_text())
    assert 220 < made["width"] < 900
    assert re.match(r'<svg[^>]* width="900"', figures.save(chart, tmp_path / "figure.svg", 900).read_text())


def test_too_narrow_a_width_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"30 points are too narrow .* needs \d.*such as column \(234\)"):
        figures.save(figures.from_runs("forest", {"run": audit()}), tmp_path / "figure.svg", 30)
    assert not list(tmp_path.iterdir())


def test_unknown_endings_and_widths(tmp_path: Path) -> None:
    chart = figures.from_runs("forest", {"run": audit()})
    with pytest.raises(UserError, match=r"cannot write a figure as '.docx'; use one of .pdf"):
        figures.save(chart, tmp_path / "figure.docx")
    with pytest.raises(UserError, match="unknown width 'colum'; did you mean 'column'"):
        figures.save(chart, tmp_path / "figure.pdf", "colum")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="above 0; got -3"):
        figures.save(chart, tmp_path / "figure.pdf", -3)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Choose another place"):
        figures.save(chart, tmp_path / "file" / "figure.json")


def test_a_page_may_choose_ink_and_background() -> None:
    chart = figures.styled(figures.from_runs("forest", {"run": audit()}), background=None, ink="#eeeeee").to_dict()
    assert chart["config"]["axis"]["labelColor"] == chart["config"]["style"]["ink"]["color"] == "#eeeeee"
    assert chart["config"]["background"] == "transparent"


@pytest.mark.slow
def test_a_page_is_made_of_one_file_without_the_network(tmp_path: Path) -> None:
    page = figures.save(figures.from_runs("forest", {"run": audit()}), tmp_path / "figure.html").read_text()
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', page)


# ---- confusion ---------------------------------------------------------------------------------------------


def test_confusion_shows_shares_without_the_diagonal_superclass_by_superclass() -> None:
    chart = confusion.draw(records(COUNTS, superclasses=GROUPS))
    cells = table_with(chart, "share", "images").set_index(["true", "predicted"])
    assert len(cells) == 12
    assert cells.loc[("cat", "dog"), ["share", "images"]].tolist() == [0.6, 6]
    assert domain(chart, "y") == domain(chart, "x") == ["ship", "car", "dog", "cat"]
    last_of_first = next(table for table in tables(chart) if len(table) == 1)
    assert last_of_first["true"].tolist() == ["car"]  # where the line between the superclasses is


def test_confusion_with_the_diagonal_and_in_an_order_of_ones_own() -> None:
    chart = confusion.draw(records(COUNTS), order=["ship"], diagonal=True)
    assert domain(chart, "y") == ["ship", "cat", "dog", "car"]
    cells = table_with(chart, "share").set_index(["true", "predicted"])
    assert cells.loc[("ship", "ship"), "share"] == 0.9
    with pytest.raises(UserError, match="unknown class 'shop'; did you mean 'ship'"):
        confusion.draw(records(COUNTS), order=["shop"])
    with pytest.raises(UserError, match="name no superclasses"):
        confusion.draw(records(COUNTS), by="superclass")


def test_confusion_by_the_groups_found_in_it() -> None:
    blocks = confusion.arrange(records(COUNTS), by="group")
    assert {frozenset(members) for members in blocks.values()} == {frozenset(NAMES[:2]), frozenset(NAMES[2:])}
    assert all(title == f"{members[0]} +1" for title, members in blocks.items())


def many(size: int, group: int) -> Records:
    """Four images a class: one right, two misclassified as the next of its group, one for the class after the group."""
    counts, own = np.zeros((size, size), dtype=int), np.arange(size)
    counts[own, own] = 1
    counts[own, own // group * group + (own + 1) % group] += 2
    counts[own, (own // group * group + group) % size] += 1
    names = tuple(f"class {c}" for c in own)
    return records(counts, names, superclasses={f"g{g}": names[g : g + group] for g in range(0, size, group)})


@pytest.mark.slow
def test_a_thousand_classes_are_drawn_by_superclass_with_the_most_frequent_confusions() -> None:
    rows = many(1000, 50)
    matrix, pairs = confusion.draw(rows), tables(confusion.draw(rows))[-1]
    cells = next(table for table in tables(matrix) if {"share", "images"} <= {*table} and "pair" not in table)
    cells = cells.set_index(["true", "predicted"])
    assert len(cells) == 40  # twenty on the diagonal, twenty beside it; the empty ones are left out
    assert cells.loc[("g0", "g0"), ["share", "images"]].tolist() == [0.5, 100]
    assert cells.loc[("g50", "g100"), ["share", "images"]].tolist() == [0.25, 50]
    assert cells["images"].sum() == int((~rows.correct).sum())
    assert len(pairs) == 15
    assert pairs["pair"].str.contains(" → ").all()
    assert (pairs["images"] == 2).all()


def test_a_hundred_classes_have_their_rows_and_their_superclasses_are_named(tmp_path: Path) -> None:
    chart = confusion.draw(many(100, 10))
    assert len(domain(chart, "y")) == 100
    drawn = figures.save(chart, tmp_path / "figure.svg").read_text()
    assert all(f">g{number}<" in drawn for number in range(0, 100, 10))
    assert ">class 5<" not in drawn


def test_panels_share_their_order_and_need_the_same_classes() -> None:
    with pytest.raises(UserError, match="other has other classes than one"):
        figures.from_runs("confusion", {"one": audit(), "other": audit(names=("a", "b", "c", "d"))})


def test_misclassified_shows_counts_and_homing_beside_them() -> None:
    homing = np.zeros((4, 4), dtype=int)
    homing[0, 1] = 5
    chart = misclassified.draw(records(COUNTS), homing=homing)
    assert [panel["title"] for panel in chart.to_dict()["hconcat"]] == ["misclassified", "homing"]
    broken, home = (table.set_index(["true", "predicted"])["images"] for table in tables(chart) if "images" in table)
    assert broken[("cat", "dog")] == 6
    assert ("cat", "cat") not in broken.index
    assert home[("cat", "dog")] == home.sum() == 5
    with pytest.raises(UserError, match=r"homing has shape \(3, 3\), expected \(4, 4\)"):
        misclassified.draw(records(COUNTS), homing=np.zeros((3, 3)))


# ---- classes and runs --------------------------------------------------------------------------------------


def test_forest_has_simultaneous_intervals_and_the_weakest_on_top() -> None:
    rows = records(COUNTS)
    chart = figures.from_runs("forest", {"one": Audit(rows), "two": audit(np.diag([4, 3, 2, 1]))})
    shown = table_with(chart, "low", "high")
    own = shown[shown["run"] == "one"].set_index("class")
    level = 0.95 ** (1 / 4)
    low, high = proportion_confint(2, 10, alpha=1 - level, method="wilson")
    assert own.loc["cat", ["value", "low", "high"]].tolist() == pytest.approx([0.2, low, high], abs=1e-6)
    assert domain(chart, "y") == ["cat", "dog", "car", "ship"]
    totals = next(table for table in tables(chart) if columns(table) == {"run", "value"})
    assert totals["value"].tolist() == [24 / 40, 1.0]


def test_forest_orders_equals_by_all_runs_and_leaves_room_at_the_ends(tmp_path: Path) -> None:
    none = np.array([[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]])
    chart = figures.from_runs("forest", {"none": audit(none), "one": audit(COUNTS[[3, 1, 2, 0]][:, [3, 1, 2, 0]])})
    assert domain(chart, "y") == ["ship", "dog", "car", "cat"]
    drawn = figures.save(chart, tmp_path / "figure.svg").read_text()
    at_zero = [float(x) for x in re.findall(r"run: none; class: \w+; value: 0\.0%;[^>]*translate\(([\d.]+),", drawn)]
    assert len(at_zero) == 8  # four points and their intervals
    assert min(at_zero) >= 3  # half the width of a mark


def test_forest_of_many_classes_keeps_both_ends() -> None:
    counts = np.diag(np.arange(100)) + np.roll(np.diag(100 - np.arange(100)), 1, axis=1)
    names = tuple(f"c{number}" for number in range(100))
    rows = domain(figures.from_runs("forest", {"run": audit(counts, names)}, most=5), "y")
    assert rows == ["c0", "c1", "c2", "… 95 more …", "c98", "c99"]
    with pytest.raises(UserError, match="most must be at least 2"):
        figures.from_runs("forest", {"run": audit()}, most=1)


def test_scatter_has_a_point_for_each_run_with_its_worst_class() -> None:
    points = table_with(figures.from_runs("scatter", {"one": audit(), "two": audit(np.diag([1, 2, 3, 4]))}), "worst")
    assert points["run"].tolist() == ["one", "two"]
    assert points["class"][0] == "cat"
    assert points[["average", "worst"]].iloc[0].tolist() == pytest.approx([0.6, 0.2])
    assert (points["worst_low"] <= points["worst"]).all()
    assert (points["worst"] <= points["worst_high"]).all()


def test_radar_places_classes_clockwise_from_the_top() -> None:
    chart = figures.from_runs("radar", {"run": audit()})
    corners = table_with(chart, "run", "place")
    assert corners["class"].tolist() == ["cat", "dog", "car", "ship", "cat"]  # closed
    # Accuracies 0.2, 0.5, 0.8, 0.9 on rings up to 100%: up, right, down, left.
    assert corners[["x", "y"]].to_numpy().ravel() == pytest.approx([0, 0.2, 0.5, 0, 0, -0.8, -0.9, 0, 0, 0.2], abs=1e-6)
    with pytest.raises(UserError, match="same classes"):
        figures.from_runs("radar", {"one": audit(), "two": audit(names=("a", "b", "c", "d"))})


def clean_and_robust() -> Audit:
    clean = records(np.diag([10, 10, 10, 10]))
    frame = pd.concat([clean.frame.assign(attack=CLEAN), records(COUNTS).frame], ignore_index=True)
    return Audit(Records(frame, Meta(class_names=NAMES, attacks={CLEAN: AttackInfo(), "pgd": AttackInfo()})))


def test_gap_marks_best_minus_worst_of_both_accuracies() -> None:
    chart = gap.draw(records(np.array([[6, 4, 0, 0], [0, 9, 1, 0], [0, 0, 9, 1], [0, 0, 1, 9]])), records(COUNTS))
    spans = table_with(chart, "text")
    assert spans["text"].tolist() == ["30.0 (cat to dog)", "70.0 (cat to ship)"]
    assert spans[["side", "at"]].to_numpy().tolist() == [["right", 0.9], ["left", 0.2]]  # where there is room
    assert spans[["low", "high"]].to_numpy().tolist() == [[0.6, 0.9], [0.2, 0.9]]
    assert domain(chart, "y") == ["cat", "dog", "car", "ship", "all images", "clean gap", "robust gap"]


def test_gap_takes_the_clean_accuracy_of_the_standard_run() -> None:
    weak = figures.from_runs("gap", {"std": clean_and_robust(), "run": clean_and_robust()}, standard="std")
    assert weak.to_dict()["title"] == "run"
    with pytest.raises(UserError, match="unknown run 'sdt'; did you mean 'std'"):
        figures.from_runs("gap", {"std": clean_and_robust()}, standard="sdt")


def test_classes_are_counted_in_intervals_closed_to_the_right() -> None:
    assert intervals.count(np.array([0, 0.1, 0.1 + 1e-6, 3 * 0.1, 0.3, 1.0]), 10) == [2, 1, 2, 0, 0, 0, 0, 0, 0, 1]
    counts = table_with(figures.from_runs("intervals", {"run": audit()}, step=0.25), "interval")
    assert dict(zip(counts["interval"], counts["classes"], strict=True)) == {
        "[0, 25]": 1,
        "(25, 50]": 1,
        "(50, 75]": 0,
        "(75, 100]": 2,
    }
    with pytest.raises(UserError, match="step must divide 1"):
        figures.from_runs("intervals", {"run": audit()}, step=0.3)


def test_confidence_needs_probabilities_and_shows_their_variance() -> None:
    with pytest.raises(UserError, match="cvc needs every class's probability"):
        figures.from_runs("confidence", {"run": audit()})
    own = records(COUNTS)
    sure = Records(own.frame, own.meta, np.eye(4)[own.prediction])
    shown = table_with(figures.from_runs("confidence", {"run": Audit(sure)}), "low")
    assert shown["value"].tolist() == pytest.approx([3 / 16] * 4)  # (1 − 1/4)² + 3 (1/4)² over 4


# ---- lines -------------------------------------------------------------------------------------------------


def test_names_are_moved_apart_as_little_as_possible() -> None:
    assert lines.apart(np.array([1.0, 1.5, 9.0]), 1.0, (0, 10)) == pytest.approx([0.75, 1.75, 9.0])
    assert lines.apart(np.zeros(3), 1.0, (0, 10)) == pytest.approx([0, 1, 2])  # not below the axis
    assert lines.apart(np.full(3, 10.0), 1.0, (0, 10)) == pytest.approx([8, 9, 10])
    assert lines.apart(np.array([]), 1.0, (0, 10)) == []


def history(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"epoch": [1, 2], "robust": [0.3, 0.5], "robust:a": [0.2, 0.1], "robust:b": [0.4, 0.9]} | columns
    )


def test_epochs_shade_from_worst_to_best_class_and_draw_the_overall_line() -> None:
    chart = epochs.draw(history())
    span = table_with(chart, "min", "max")
    assert span[["min", "max"]].to_numpy().tolist() == [[0.2, 0.4], [0.1, 0.9]]
    overall = next(table for table in tables(chart) if columns(table) == {"x", "value"})
    assert overall["value"].tolist() == [0.3, 0.5]
    ends = table_with(chart, "colour")
    assert ends["class"].tolist() == ["a", "all", "b"]


def test_epochs_less_the_mean_of_the_classes() -> None:
    """Classes at 0.2 and 0.6, then 0.3 and 0.5: off their mean by 0.2, then by 0.1."""
    table = pd.DataFrame({"epoch": [1, 2], "robust": [0.4, 0.4], "robust:a": [0.2, 0.3], "robust:b": [0.6, 0.5]})
    chart = figures.from_histories("epochs", {"run": table}, subtract_mean=True)
    shown = table_with(chart, "number").set_index(["x", "class"])["value"]
    assert shown.to_dict() == pytest.approx({(1, "a"): -0.2, (2, "a"): -0.1, (1, "b"): 0.2, (2, "b"): 0.1})
    assert "robust accuracy minus the mean" in json.dumps(chart.to_dict(validate=False))


def test_epochs_single_out_the_classes_asked_for() -> None:
    chart = figures.from_histories("epochs", {"run": history()}, highlight=("b",))
    assert table_with(chart, "number")["class"].unique().tolist() == ["b"]
    with pytest.raises(UserError, match="unknown class 'x'"):
        figures.from_histories("epochs", {"run": history()}, highlight=("x",))


def test_epochs_without_held_out_images() -> None:
    with pytest.raises(UserError, match=r"data\.validation above 0"):
        figures.from_histories("epochs", {"run": pd.DataFrame({"epoch": [1], "train_accuracy": [0.5]})})
    with pytest.raises(UserError, match="a history has a column epoch; this one has robust:a"):
        epochs.draw(pd.DataFrame({"robust:a": [0.5]}))


def test_an_epoch_whose_validation_was_skipped_is_left_out() -> None:
    chart = epochs.draw(history(**{"robust:a": [np.nan, 0.1], "robust:b": [np.nan, 0.9], "robust": [np.nan, 0.5]}))
    assert table_with(chart, "min")["x"].tolist() == [2]


def test_a_history_is_read_from_its_folder(tmp_path: Path) -> None:
    history(**{"robust:x:y": [0.1, 0.2]}).to_csv(tmp_path / "history.csv", index=False)
    assert epochs.by_class(TrainingFolder(tmp_path).history(), "robust")["class"].unique().tolist() == ["a", "b", "x:y"]
    with pytest.raises(UserError, match=r"has no history\.csv"):
        TrainingFolder(tmp_path / "nowhere").history()
    (tmp_path / "history.csv").write_text("")
    with pytest.raises(UserError, match="Is its first epoch over"):
        TrainingFolder(tmp_path).history()


def test_the_state_drawn_is_what_moves() -> None:
    state = {"weight:a": [1.0, 1.2], "weight:b": [1.0, 0.8], "beta:a": [6.0, 6.0], "beta:b": [6.0, 6.0]}
    table = history(**state, **{"least:a": [np.inf, 1.0], "least:b": [np.inf, 2.0]})
    assert class_state.states(table) == ["weight", "beta", "least"]
    assert class_state.moving(table) == ["weight"]
    chart = figures.from_histories("class_state", {"run": table})
    assert table_with(chart, "min")[["min", "max"]].to_numpy().tolist() == [[1.0, 1.0], [0.8, 1.2]]
    both = figures.from_histories("class_state", {"run": table}, state=("weight", "beta"))
    assert len(both.to_dict()["vconcat"]) == 2
    with pytest.raises(UserError, match="unknown class-wise state 'weigth'; did you mean 'weight'"):
        figures.from_histories("class_state", {"run": table}, state=("weigth",))


@pytest.mark.slow
def test_the_axis_of_a_state_has_plain_numbers(tmp_path: Path) -> None:
    table = history(**{"weight:a": [10.0, 9.0], "weight:b": [1.0, 0.8]})
    chart = figures.from_histories("class_state", {"run": table})
    drawn = figures.save(chart, tmp_path / "figure.svg").read_text()
    assert ">10<" in drawn
    assert "1e+1" not in drawn


@pytest.mark.slow
def test_a_run_has_a_panel_only_for_the_state_that_moves_in_it() -> None:
    moves = {"weight:a": [1.0, 1.2], "weight:b": [1.0, 0.8]}
    both = history(**moves, **{"margin:a": [1.0, 0.9], "margin:b": [1.0, 1.0]})
    one = history(**moves, **{"margin:a": [1.0, 1.0], "margin:b": [1.0, 1.0]})
    weights, margins = figures.from_histories("class_state", {"one": one, "both": both}).to_dict()["vconcat"]
    assert [panel["title"] for panel in weights["concat"]] == ["one", "both"]
    assert margins["title"] == "both"
    asked = figures.from_histories("class_state", {"one": one, "both": both}, state=("margin",)).to_dict()
    assert [panel["title"] for panel in asked["concat"]] == ["one", "both"]


def test_state_that_never_moves_is_said_so() -> None:
    with pytest.raises(UserError, match=r"no class-wise state changed .* there is beta"):
        figures.from_histories("class_state", {"run": history(**{"beta:a": [6.0, 6.0], "beta:b": [6.0, 6.0]})})


def test_a_class_has_one_colour_whatever_is_highlighted_beside_it() -> None:
    """In class order, so that epochs, curves and the page agree; from the ninth class on the dash differs."""
    frame = pd.DataFrame(
        {"epoch": [1, 2], "robust": [0.4, 0.4], **{f"robust:c{k}": [0.1 * k, 0.09 * k] for k in range(10)}}
    )
    for highlight in (("c1", "c9"), ("c9", "c4", "c1")):
        shown = table_with(epochs.draw(frame, highlight=highlight), "number")
        assert dict(zip(shown["class"], shown["number"], strict=True)) == {name: int(name[1:]) for name in highlight}
    assert style.class_colour(1) == style.class_colour(9) == style.PALETTE[1]
    scales = json.dumps(epochs.draw(frame, highlight=("c1", "c9")).to_dict())
    dashes = json.loads(re.search(r'"strokeDash": .*?"range": (\[\[.*?\]\])', scales)[1])  # type: ignore[index]
    assert dashes[1] != dashes[9]


def test_a_name_that_moved_is_led_to_the_end_of_its_line() -> None:
    frame = pd.DataFrame(
        {"epoch": [1, 2], "robust": [0.5, 0.5], **{f"robust:c{k}": [0.5, 0.5 + 0.001 * k] for k in range(6)}}
    )
    ends = table_with(epochs.draw(frame), "end").set_index("class")
    assert ends.loc["c3", "end"] == pytest.approx(0.503)
    names = ends["value"].sort_values().to_numpy()
    assert (np.diff(names) > 0.03).all()  # a line of letters in a plot from 0 to 0.6
    assert abs(ends["value"] - ends["end"]).max() < 0.2


def swept(audit_of: AuditOf, scale: float = 255) -> Audit:
    infos = {f"pgd@{k}": AttackInfo(settings={"name": "pgd"}, eps=k / scale, family="pgd") for k in (4, 8)}
    return audit_of({"pgd@4": [5, 2], "pgd@8": [1, 2]}, support=[10, 2], names=("cat", "dog"), infos=infos)


def test_curve_begins_at_clean_images_and_counts_every_image_once(audit_of: AuditOf) -> None:
    chart = figures.from_runs("curve", {"run": swept(audit_of)})
    overall = next(table for table in tables(chart) if columns(table) == {"x", "value"})
    assert overall["x"].tolist() == [0, 4, 8]
    assert overall["value"].tolist() == pytest.approx([1, 7 / 12, 3 / 12])
    points = table_with(chart, "low", "number").set_index(["class", "x"])
    low, high = proportion_confint(5, 10, method="wilson")
    assert points.loc[("cat", 4), ["value", "low", "high"]].tolist() == pytest.approx([0.5, low, high], abs=1e-6)
    assert "1/255" in json.dumps(chart.to_dict())
    assert "1/255" not in json.dumps(figures.from_runs("curve", {"run": swept(audit_of, 1000)}).to_dict())


def test_curve_needs_radii_and_a_known_attack(audit_of: AuditOf) -> None:
    with pytest.raises(UserError, match="at least two radii"):
        figures.from_runs("curve", {"run": audit_of({}, support=[2, 2])})
    with pytest.raises(UserError, match="run has no attack 'fgsm'; it has pgd"):
        figures.from_runs("curve", {"run": swept(audit_of)}, family="fgsm")
    with pytest.raises(UserError, match="n, low, high missing"):
        curve.draw(pd.DataFrame({"eps": [0, 1], "class": "a", "accuracy": [1, 0]}))


def test_the_simultaneous_intervals_of_the_forest_are_wider_than_single_ones() -> None:
    single = accuracy.compute(records(COUNTS))
    shown = table_with(figures.from_runs("forest", {"run": audit()}), "low")
    assert (shown.set_index("class").loc[list(NAMES), "low"].to_numpy() < single.low).all()
