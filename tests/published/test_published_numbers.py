"""The printed numbers: tables and statements as in the papers, with their source and without torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import pytest

from classwise import published
from classwise.core.errors import UserError
from classwise.data import cifar10, stl10
from classwise.published.numbers import LABELS
from for_each import for_each

CLASSES = [str(number) for number in range(10)]


@for_each(
    ("name", "shape"),
    [
        ("tian2021:table1", (20, 15)),
        ("tian2021:table2", (20, 4)),
        ("tian2021:table3", (5, 28)),
        ("tian2021:table4", (6, 22)),
        ("tian2021:table5", (6, 5)),
        ("tian2020:table2", (20, 13)),
        ("tian2020:table3", (4, 14)),
        ("tian2020:table4", (20, 13)),
        ("tian2020:table5", (4, 13)),
        ("tian2020:table6", (4, 11)),
        ("li2023:table1", (10, 14)),
        ("li2023:table2", (5, 13)),
        ("li2023:table3", (5, 14)),
        ("li2023:table4", (5, 5)),
        ("li2023:table5", (5, 13)),
    ],
)
def test_tables_hold_every_printed_row_as_numbers(name: str, shape: tuple[int, int]) -> None:
    rows = published.table(name)
    assert rows.shape == shape
    numbers = rows.drop(columns=[column for column in LABELS if column in rows])
    assert all(pd.api.types.is_numeric_dtype(kind) for kind in numbers.dtypes)


def test_a_few_cells_as_printed() -> None:
    kdd = published.table("tian2021:table1").set_index(["defense", "attack"])
    assert kdd.loc[("HE", "nattack"), ["total", "3", "cv", "mcd"]].tolist() == [69.7, 44.7, 168.6, 43.5]
    best = published.table("tian2021:table3").iloc[-1]
    assert (best["defense"], best["inv_temperature"], best["4"], best["change_4"]) == ("HE", 50, 23.0, -24.9)
    wat = published.table("li2023:table3").set_index("eta")
    assert wat.loc[0.5, ["pgd100_avg", "pgd100_worst", "pgd100_rho"]].tolist() == [48.09, 37.5, 0.418]


def test_what_print_leaves_empty_is_nan() -> None:
    assert published.table("li2023:table3")["eta"].isna().tolist() == [True, False, False, False, False]
    assert published.table("tian2021:table4")["change_3"].isna().tolist() == [True, False, False, True, False, False]


def test_a_table_can_be_changed_without_harm() -> None:
    rows = published.table("tian2021:table1")
    rows.loc[:, "total"] = 0.0
    assert published.table("tian2021:table1")["total"].min() > 50


def test_every_row_of_table_4_is_a_thousand_images() -> None:
    assert published.table("tian2021:table4")[CLASSES].sum(axis=1).eq(1000).all()


def test_the_row_printed_in_the_misclassified_matrix_is_that_of_the_resnet() -> None:
    """Of 1000 images of class 9 those not taken for another class are the 62.0% of tian2020 table 5."""
    row = published.statements("tian2020:figure3a")
    madry = published.table("tian2020:table5").iloc[0]
    assert len(row) == 9
    assert 1000 - row["value"].sum() == pytest.approx(10 * madry["9"])


@pytest.mark.parametrize(("dataset", "module"), [("CIFAR-10", cifar10), ("STL-10", stl10)])
def test_the_printed_superclasses_are_ours(dataset: str, module: Any) -> None:
    rows = published.table("tian2020:table1").query("dataset == @dataset")
    rows = rows.assign(**{"class": rows["class"].str.lower(), "superclass": rows["superclass"].str.lower()})
    assert [module.CLASS_NAMES[label] for label in rows["label"]] == rows["class"].tolist()
    assert rows.groupby("superclass")["class"].agg(tuple).to_dict() == module.SUPERCLASSES


def test_statements_are_of_known_items_and_said_once() -> None:
    rows = published.statements()
    assert {*rows["item"]} <= {entry.id for entry in published.items()}
    assert not rows.duplicated(["item", "quantity"]).any()
    assert (rows[["unit", "place"]] != "").all(axis=None)
    homing = {name: published.statements(name)["value"].tolist() for name in ("tian2021:figure4a", "tian2021:figure4b")}
    assert homing == {"tian2021:figure4a": [200], "tian2021:figure4b": [119]}


def test_the_source_names_paper_place_and_units() -> None:
    assert "KDD 2021, Table 3. Columns: defense; inv_temperature is 1/T" in published.source("tian2021:table3")
    assert published.source("benz2020:section3.4").endswith("2020, Section 3.4.")
    assert all(published.source(entry.id) for entry in published.items())


def test_a_figure_has_no_table_and_says_where_its_numbers_are() -> None:
    with pytest.raises(UserError, match=r"prints no table; .*published\.statements\('tian2021:figure4a'\)"):
        published.table("tian2021:figure4a")


@pytest.mark.slow
def test_torch_is_not_loaded() -> None:
    program = "import sys; import classwise.published; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
