"""Figures drawn from the tables of studies: what they contain, what they compute, and what they say of a bad table."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.show.figures import (
    background,
    confidence_path,
    corruptions,
    discrepancy,
    features,
    panels,
    save,
    similarity,
    sweep,
    weight_norm,
)
from for_each import for_each

#: Names that a field path, an expression, markup or a list might trip over.
NAMES = ["<script>alert(1)</script>", "a.b", "c[0]", 'it\'s "so"', "x, y; z", "datum.value", "café & co"]
KINDS = ["clean", "adversarial"]


def accuracies(names: list[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.linspace(0.2, 0.8, len(names))


def sweep_table(names: list[str] = NAMES) -> pd.DataFrame:
    """The second class rises by 0.08 and the first falls by 0.04; the others stay."""
    moves = {names[0]: -0.01, names[1]: 0.02}
    rows = [
        (value, name, accuracy + moves.get(name, 0) * value)
        for value in (1, 2, 4, 5)
        for name, accuracy in zip(names, accuracies(names), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["value", "class", "accuracy"])
    return frame.assign(low=frame["accuracy"] - 0.02, high=frame["accuracy"] + 0.02)


def path_table(names: list[str] = NAMES) -> pd.DataFrame:
    rows = []
    for attack, step in itertools.product(("pgd", "temperature-pgd"), (0, 1, 10, 20)):
        weights = np.arange(1, len(names) + 1) + step
        rows += [(step, name, p, attack) for name, p in zip(names, weights / weights.sum(), strict=True)]
    return pd.DataFrame(rows, columns=["step", "class", "probability", "attack"])


def norm_table(names: list[str] = NAMES) -> pd.DataFrame:
    accuracy = accuracies(names)
    return pd.DataFrame(
        {"class": names, "accuracy": accuracy, "norm": 1 + accuracy**2, "low": accuracy - 0.05, "high": accuracy + 0.05}
    )


def feature_table(names: list[str] = NAMES) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [(*rng.normal(at, 0.2, 2), name, kind) for kind in KINDS for at, name in enumerate(names) for _ in range(4)]
    return pd.DataFrame(rows, columns=["x", "y", "class", "kind"])


def discrepancy_table(names: list[str] = NAMES) -> pd.DataFrame:
    rows = [
        (model, attack, name, accuracy)
        for model, attack in itertools.product(("standard", "trades"), ("clean", "pgd-20"))
        for name, accuracy in zip(names, accuracies(names), strict=True)
    ]
    return pd.DataFrame(rows, columns=["model", "attack", "class", "accuracy"])


def pair_table(names: list[str] = NAMES) -> pd.DataFrame:
    pairs = itertools.product(enumerate(names), repeat=2)
    rows = [(a, b, math.cos(i - j), 0.5 if i == j else 0.01 * (i + j)) for (i, a), (j, b) in pairs]
    return pd.DataFrame(rows, columns=["true", "predicted", "cosine", "share"])


def corruption_tables(names: list[str] = NAMES) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Under attack the order of the classes is the reverse of that under corruptions."""
    each = list(zip(names, accuracies(names), strict=True))
    rows = [(kind, level, name, a / level) for kind in ("fog", "snow") for level in (1, 2) for name, a in each]
    beside = [(attack, name, 1 - a) for attack in ("clean", "pgd-20") for name, a in each]
    columns = ["corruption", "severity", "class", "accuracy"]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(beside, columns=["attack", "class", "accuracy"])


def background_table(names: list[str] = NAMES) -> tuple[pd.DataFrame, dict[str, str]]:
    rows = [
        (kind, a, b, 50 if a == b else 1 + i * j)
        for kind, (i, a), (j, b) in itertools.product(KINDS, enumerate(names), enumerate(names))
    ]
    frame = pd.DataFrame(rows, columns=["kind", "true", "predicted", "images"])
    return frame, {name: ("red", "<b>blue</b>")[at % 2] for at, name in enumerate(names)}


def panel_table(names: list[str] = NAMES) -> pd.DataFrame:
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    return pd.DataFrame([{"row": name, "column": kind, "image": image} for name in names for kind in KINDS])


FIGURES: dict[str, Callable[[], Any]] = {
    "sweep": lambda: sweep.draw(sweep_table(), setting="β", log=True, highlight=NAMES),
    "confidence_path": lambda: confidence_path.draw(path_table(), true_class=NAMES[0]),
    "weight_norm": lambda: weight_norm.draw(norm_table()),
    "features": lambda: features.draw(feature_table()),
    "discrepancy": lambda: discrepancy.draw(discrepancy_table()),
    "similarity": lambda: similarity.draw(pair_table()),
    "corruptions": lambda: corruptions.draw(*corruption_tables()),
    "background": lambda: background.draw(*background_table()),
    "panels": lambda: panels.draw(panel_table()),
}


def rows_of(chart: Any) -> list[dict[str, Any]]:
    """All rows a chart carries, of all its parts."""
    datasets = chart.to_dict()["datasets"].values()
    return [row for data in datasets for row in (json.loads(data) if isinstance(data, str) else data)]


def texts(chart: Any, folder: Path, width: Literal["page"] | None = None) -> list[str]:
    """What stands written in the drawing; lines of one text are joined."""
    root = ET.fromstring(save(chart, folder / "figure.svg", width).read_bytes())
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_on_a_page_shows_every_class_by_its_name(name: str, tmp_path: Path) -> None:
    written = texts(FIGURES[name](), tmp_path, width="page")
    missing = [own for own in NAMES if not any(text.startswith(own) for text in written)]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_files_of_every_kind(name: str, tmp_path: Path) -> None:
    chart = FIGURES[name]()
    assert save(chart, tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(save(chart, tmp_path / "figure.png")) as image:
        assert len(image.convert("L").getcolors(1 << 24) or ()) > 10


NEEDED: dict[str, tuple[Callable[[pd.DataFrame], Any], Callable[[], pd.DataFrame], str]] = {
    "sweep": (sweep.draw, sweep_table, "value"),
    "confidence_path": (confidence_path.draw, path_table, "probability"),
    "weight_norm": (weight_norm.draw, norm_table, "norm"),
    "features": (features.draw, feature_table, "kind"),
    "discrepancy": (discrepancy.draw, discrepancy_table, "accuracy"),
    "similarity": (similarity.draw, pair_table, "cosine"),
    "corruptions": (corruptions.draw, lambda: corruption_tables()[0], "severity"),
    "background": (lambda frame: background.draw(frame, {}), lambda: background_table()[0], "images"),
    "panels": (panels.draw, panel_table, "image"),
}


@for_each("name", NEEDED)
def test_a_missing_column_is_named_with_those_there_are(name: str) -> None:
    draw, table, column = NEEDED[name]
    with pytest.raises(UserError, match=rf"^{name} draws a table .*; {column} missing\. The table has: .*\.$"):
        draw(table().drop(columns=column))


@for_each("name", NEEDED)
def test_a_table_without_rows_is_an_error(name: str) -> None:
    draw, table, _ = NEEDED[name]
    with pytest.raises(UserError, match=f"{name} got a table without rows"):
        draw(table().iloc[:0])


def test_text_where_numbers_belong_is_an_error() -> None:
    with pytest.raises(UserError, match="the column accuracy of sweep holds numbers; got 'high'"):
        sweep.draw(sweep_table().assign(accuracy="high"))


def test_columns_a_figure_does_not_know_stay_out_of_it() -> None:
    rows = rows_of(sweep.draw(sweep_table().assign(secret=object())))
    assert not any("secret" in row for row in rows)


def test_a_figure_may_hold_more_rows_than_altair_allows_a_data_frame() -> None:
    frame = pd.concat([feature_table(NAMES[:1])] * 640)
    assert len(rows_of(features.draw(frame))) > 5000


# ---- sweep -------------------------------------------------------------------------------------------------


def test_sweep_singles_out_the_classes_that_move_and_draws_their_mean() -> None:
    names = [f"class {at}" for at in range(20)]
    frame = sweep_table(names)
    rows = rows_of(sweep.draw(frame, setting="weight"))
    named = {row["class"] for row in rows if row.get("colour")} - {"all"}
    assert {"class 0", "class 1"} <= named
    assert len(named) == 4
    means = {row["x"]: row["value"] for row in rows if {key for key in row if "tip" not in key} == {"x", "value"}}
    assert means[5] == pytest.approx(0.5 + (-0.05 + 0.10) / 20, abs=1e-6)


def test_sweep_on_a_logarithmic_axis_refuses_zero() -> None:
    frame = sweep_table().replace({"value": {1: 0}})
    with pytest.raises(UserError, match="no place for β 0; leave it out or use log=False"):
        sweep.draw(frame, setting="β", log=True)


def test_sweep_needs_two_values_and_known_classes() -> None:
    with pytest.raises(UserError, match="at least two values of η; the column value holds only 1"):
        sweep.draw(sweep_table().query("value == 1"), setting="η")
    with pytest.raises(UserError, match=r"unknown class 'a\.c'; did you mean 'a\.b'"):
        sweep.draw(sweep_table(), highlight=["a.c"])


# ---- confidence along the steps ----------------------------------------------------------------------------


def test_confidence_path_shows_first_last_and_one_between() -> None:
    titles = [panel["title"]["text"] for panel in confidence_path.draw(path_table()).to_dict()["hconcat"]]
    assert titles == ["step 0", "step 10", "step 20"]


def test_confidence_path_gathers_what_it_does_not_name_and_keeps_the_true_class() -> None:
    names = [f"class {at}" for at in range(100)]
    rows = rows_of(confidence_path.draw(path_table(names), true_class="class 0", steps=[1], most=3))
    assert {row["label"] for row in rows} == {"class 0 (true)", "class 98", "class 99", "97 others"}
    assert sum(row["probability"] for row in rows if row["attack"] == "pgd") == pytest.approx(1, abs=1e-4)


def test_confidence_path_names_what_it_does_not_have() -> None:
    with pytest.raises(UserError, match="no step 7; it has 0, 1, 10, 20"):
        confidence_path.draw(path_table(), steps=[7])
    with pytest.raises(UserError, match=r"unknown class 'c\[1\]'; did you mean 'c\[0\]'"):
        confidence_path.draw(path_table(), true_class="c[1]")


# ---- weight norm -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_weight_norm_orders_classes_by_accuracy_and_says_rho(tmp_path: Path) -> None:
    frame = pd.concat([norm_table().assign(model="trades"), norm_table().assign(model="standard", norm=2.0)])
    chart = weight_norm.draw(frame)
    first, second = chart.to_dict()["concat"]
    assert first["title"] == ["trades", "ρ = 1.00 (95% CI 0.67 to 1.00)"]
    assert second["title"] == ["standard", "ρ is not defined"]
    assert first["hconcat"][1]["encoding"]["y"]["sort"] == NAMES[::-1]
    assert "1.4" in " ".join(texts(chart, tmp_path))


# ---- features ----------------------------------------------------------------------------------------------


def test_features_have_a_panel_per_kind_on_common_axes() -> None:
    frame = feature_table()
    one, other = features.draw(frame).to_dict()["hconcat"]
    assert [one["title"], other["title"]] == KINDS
    for axis in "xy":
        domains = [panel["layer"][0]["encoding"][axis]["scale"]["domain"] for panel in (one, other)]
        assert domains == [[frame[axis].min(), frame[axis].max()]] * 2


def test_features_tell_any_two_of_forty_classes_apart() -> None:
    names = [f"class {at}" for at in range(40)]
    front = features.draw(feature_table(names)).to_dict()["hconcat"][0]["layer"][1]["encoding"]
    looks = list(zip(front["color"]["scale"]["range"], front["shape"]["scale"]["range"], strict=True))
    assert len(set(looks)) == len(names)


def test_features_by_group_have_a_legend_and_only_chosen_classes_a_name() -> None:
    frame = feature_table().assign(group=lambda f: np.where(f["class"] == "a.b", "one", "two"))
    front = features.draw(frame).to_dict()["hconcat"][0]["layer"][1]["encoding"]
    assert front["color"]["scale"]["domain"] == ["two", "one"]
    assert front["color"]["legend"] is not None
    named = [
        row["class"] for row in rows_of(features.draw(frame, highlight=["a.b"])) if set(row) == {"class", "x", "y"}
    ]
    assert named == ["a.b", "a.b"]
    with pytest.raises(UserError, match="unknown class 'cat'"):
        features.draw(frame, highlight=["cat"])


# ---- discrepancy -------------------------------------------------------------------------------------------


def test_discrepancy_is_the_distance_from_the_mean_of_the_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"class": list("abc"), "accuracy": [0.9, 0.2, 0.4], "low": 0.1, "high": 0.95})
    chart = discrepancy.draw(frame)
    rows = {row["class"]: row for row in rows_of(chart)}
    assert {name: row["accuracy_off"] for name, row in rows.items()} == pytest.approx({"a": 40, "b": -30, "c": -10})
    assert (rows["a"]["low_off"], rows["a"]["high_off"]) == pytest.approx((-40, 45))
    assert chart.to_dict()["concat"][0]["layer"][0]["encoding"]["y"]["sort"] == ["b", "c", "a"]
    assert "average 50.0%" in texts(chart, tmp_path)


def test_discrepancy_of_many_classes_keeps_the_ends_and_the_average_of_all() -> None:
    names = [f"class {at}" for at in range(100)]
    frame = pd.DataFrame({"class": names, "accuracy": np.arange(100) / 100})
    chart = discrepancy.draw(frame, most=2)
    rows = rows_of(chart)
    assert {row["class"] for row in rows} == {"class 0", "class 1", "class 98", "class 99"}
    assert min(row["accuracy_off"] for row in rows) == pytest.approx(-49.5)
    assert chart.to_dict()["title"] == "The 2 lowest and the 2 highest of 100 classes"


def test_discrepancy_says_which_class_comes_twice() -> None:
    with pytest.raises(UserError, match=r"the class 'a\.b' twice for the same model and attack"):
        discrepancy.draw(pd.concat([norm_table(), norm_table().iloc[[1]]]))


# ---- similarity --------------------------------------------------------------------------------------------


def test_similarity_leaves_out_the_diagonal_and_says_rho() -> None:
    frame = pair_table(["a", "b", "c"])
    frame["share"] = np.where(frame["true"] == frame["predicted"], 0.0, frame["cosine"] + 1)
    chart = similarity.draw(frame, order=["c"])
    matrix, scatter = chart.to_dict()["hconcat"]
    assert scatter["title"] == "ρ = 1.00 over 6 ordered pairs"
    assert matrix["layer"][0]["encoding"]["x"]["sort"] == ["c", "a", "b"]
    assert all(row["true"] != row["predicted"] for row in rows_of(chart))


def test_similarity_of_one_class_is_an_error() -> None:
    with pytest.raises(UserError, match="only with itself"):
        similarity.draw(pair_table(["a"]))


# ---- corruptions -------------------------------------------------------------------------------------------


def test_corruptions_go_by_the_attack_where_there_is_one() -> None:
    table, beside = corruption_tables()
    alone = corruptions.draw(table).to_dict()
    assert alone["encoding"]["y"]["sort"] == NAMES
    both = corruptions.draw(table, beside).to_dict()
    assert both["hconcat"][0]["encoding"]["y"]["sort"] == NAMES[::-1]
    assert both["title"] == "Classes under corruptions and under pgd-20: ρ = −1.00 (95% CI −1.00 to −0.67)"


def test_corruptions_and_attacks_are_of_the_same_classes() -> None:
    table, beside = corruption_tables()
    with pytest.raises(UserError, match=r"unknown class 'a\.x'; did you mean 'a\.b'"):
        corruptions.draw(table, beside.replace("a.b", "a.x"))


# ---- background --------------------------------------------------------------------------------------------


def test_errors_on_the_same_background_by_hand() -> None:
    errors = pd.DataFrame([("a", "b", 6), ("a", "c", 2), ("c", "a", 2)], columns=["true", "predicted", "images"])
    # Six of ten stay; by chance 8 errors of a would by 1/2 (b among b, c) and the 2 of c by 0: 4 of 10.
    assert background.same_background(errors, {"a": "x", "b": "x", "c": "y"}) == pytest.approx((0.6, 0.4))


def test_background_puts_the_classes_of_one_background_together() -> None:
    frame, grounds = background_table(list("abcd"))
    clean, attacked = background.draw(frame, grounds).to_dict()["hconcat"]
    assert clean["layer"][0]["encoding"]["x"]["sort"] == ["a", "c", "b", "d"]
    # Errors a…d with place i: 1 + i·j images. Of 34 in all, a↔c and b↔d have 2 (1 + 0·2) and 8 (1 + 1·3) images.
    assert attacked["title"]["text"] == ["adversarial", "errors in frames: 29%", "by chance: 33%"]


def test_background_of_every_class_must_be_known() -> None:
    frame, grounds = background_table()
    del grounds["a.b"], grounds["c[0]"]
    with pytest.raises(UserError, match=r"background of every class; 'a\.b', 'c\[0\]' missing"):
        background.draw(frame, grounds)


# ---- panels ------------------------------------------------------------------------------------------------


def test_panels_of_an_audit_are_its_most_confident_errors_of_different_classes() -> None:
    """Five kept images, the third right: of a the surest is image 4, of b image 7; then the other of a."""
    pixels = np.full((5, 1, 4, 4), 0.5, dtype=np.float32)
    kept = {
        "index": np.array([3, 4, 5, 7, 9]), "label": np.array([0, 0, 0, 1, 0]), "prediction": np.array([1, 1, 0, 0, 1]),
        "clean": pixels, "exact": pixels + 0.1,
    }  # fmt: skip
    sure = pd.DataFrame({"confidence": [0.6, 0.9, 0.99, 0.5, 0.7]})
    rows = SimpleNamespace(frame=sure, index=kept["index"])
    named = SimpleNamespace(class_names=("a", "b"))
    audit: Any = SimpleNamespace(
        attacks=("fgsm", "pgd"), adversarial=lambda _: kept, rows=lambda _: rows, records=named
    )
    table = panels._broken("run", audit, None, 3)
    assert list(dict.fromkeys(table["row"])) == ["a, image 4", "b, image 7", "a, image 9"]
    assert table.loc[table["column"] == "adversarial", "caption"].tolist() == ["b", "a", "b"]
    audit.adversarial = lambda _: {key: value for key, value in kept.items() if key != "clean"}
    with pytest.raises(UserError, match="of an earlier version"):
        panels._broken("run", audit, None, 3)


def decoded(uri: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_an_image_comes_back_from_its_address(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert (decoded(panels.data_uri(image)) == image).all()
    assert (decoded(panels.data_uri((image / 255).astype(np.float32))) == image).all()
    assert (decoded(panels.data_uri(image[..., None] if image.ndim == 2 else image)) == image).all()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((3, 8, 9), dtype=np.uint8), r"got the shape 3×8×9\. Move the channels to the end"),
        (np.full((2, 2), 7.5), r"got float64 from 7\.5 to 7\.5"),
        (np.full((2, 2), np.nan), "got float64 from nan to nan"),
        (np.zeros((2, 2), dtype=np.int64), "got int64"),
        (np.zeros((0, 2)), "got the shape 0×2"),
    ],
)
def test_what_is_no_image_is_an_error(image: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        panels.data_uri(image)


def test_triples_amplify_all_differences_alike() -> None:
    clean = [np.full((2, 2), 0.5), np.full((2, 2), 0.25)]
    moved = [clean[0] + 0.05, clean[1] - 0.02]
    table = panels.triples(clean, moved, ["one", "two"], ["dog", "cat"])
    assert list(table["column"].unique()) == ["clean", "adversarial", "difference ×7"]
    first, second = table.loc[table["column"] == "difference ×7", "image"]
    assert first[0, 0] == round(255 * (0.5 + 7 * 0.05))
    assert second[0, 0] == round(255 * (0.5 - 7 * 0.02))
    assert list(table.loc[table["column"] == "adversarial", "caption"]) == ["dog", "cat"]
    with pytest.raises(UserError, match="got 2 clean, 2 adversarial, 1 names, 1 captions"):
        panels.triples(clean, moved, ["one"])


def test_images_that_did_not_move_have_a_grey_difference() -> None:
    image = np.full((2, 2, 3), 9, dtype=np.uint8)
    table = panels.triples([image], [image], ["one"])
    assert (table["image"].iloc[-1] == 128).all()


def test_panels_carry_images_and_lines_of_captions(tmp_path: Path) -> None:
    table = panel_table(["one"]).assign(caption=["cat 90%\ndog 5%", None])
    svg = save(panels.draw(table), tmp_path / "panels.svg").read_text(encoding="utf-8")
    assert svg.count("data:image/png;base64,") == 2
    written = texts(panels.draw(table), tmp_path)
    assert {"cat 90%dog 5%", "one", "clean", "adversarial"} <= set(written)
    assert "None" not in written


def test_panels_refuse_two_images_in_one_place() -> None:
    with pytest.raises(UserError, match="two images share the row 'one' and the column 'clean'"):
        panels.draw(pd.concat([panel_table(["one"])] * 2, ignore_index=True))
