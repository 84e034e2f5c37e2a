"""Every table and figure has a plan at both scales, and printed numbers stand beside ours where they belong."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from classwise import published
from classwise.core.errors import UserError
from classwise.data import class_names
from classwise.studies.reproduction import reproduce
from classwise.studies.reproduction.measured import READERS
from classwise.studies.runner.result import StudyResult
from for_each import for_each

CLASSES = class_names("cifar10")
assert CLASSES is not None


@pytest.mark.slow
@for_each("scale", ["desk", "paper"])
@for_each("name", reproduce.names())
def test_every_table_and_figure_has_a_plan_whose_jobs_fit_together(name: str, scale: reproduce.Scale) -> None:
    chosen = reproduce.plan(name, scale)
    assert len(reproduce.graph(name, scale)) > 0
    assert chosen.item.id == name


def test_every_printed_table_of_measurements_has_a_reader() -> None:
    without = {name for name in published.names() if name not in READERS}
    assert without == {"tian2021:table2", "tian2020:table1"}  # lists of superclasses


def test_a_sketch_and_a_wrong_name_are_errors() -> None:
    with pytest.raises(UserError, match="is a sketch"):
        reproduce.plan("li2023:figure1")
    with pytest.raises(UserError, match=r"did you mean 'tian2021:table1'"):
        reproduce.plan("tian2021:tabel1")
    with pytest.raises(UserError, match="unknown scale 'dsek'; did you mean 'desk'"):
        reproduce.plan("tian2021:table1", "dsek")  # type: ignore[arg-type]


def attacks_outcome() -> StudyResult:
    """The printed table as if a study had measured it, each number one point higher."""
    rows = []
    for _, line in published.table("tian2021:table1").iterrows():
        row = {
            "model": str(line["defense"]).lower(),
            "attack": {"cw_inf": "cw", "pgd": "pgd:steps=20"}.get(*2 * [line["attack"]]),
        }
        row |= {"total": line["total"] + 1, "cv_percent2": line["cv"] + 1, "mcd": line["mcd"] + 1}
        rows.append(row | {name: line[str(number)] + 1 for number, name in enumerate(CLASSES or ())})
    return StudyResult({"robustness": pd.DataFrame(rows)})


def test_each_printed_number_finds_ours() -> None:
    frame = reproduce.beside(reproduce.plan("tian2021:table1"), attacks_outcome())
    assert len(frame) == 20 * 13
    assert frame["difference"].to_numpy() == pytest.approx(1.0)
    marked = frame[frame["misprint"] != ""]
    assert set(marked["row"]) == {"MART, transfer"}


def test_what_was_not_measured_is_left_empty() -> None:
    result = attacks_outcome()
    few = result.tables["robustness"].query("model != 'he'")
    frame = reproduce.beside(reproduce.plan("tian2021:table1"), StudyResult({"robustness": few}))
    assert frame.loc[frame["row"].str.startswith("HE"), "ours"].isna().all()
    assert frame.loc[frame["row"].str.startswith("Madry"), "ours"].notna().all()


def test_rows_of_another_data_set_are_not_ours() -> None:
    row = {"attack": "pgd-100", "model": "frl_rw", "average": 50.0, "worst": 20.0, "rho": 0.1, "cv_percent2": 250.0}
    frame = reproduce.beside(reproduce.plan("li2023:table1"), StudyResult({"methods": pd.DataFrame([row])}))
    found = frame.dropna(subset="ours")
    assert set(found["row"]) == {"CIFAR-10, FRL-RW"}
    assert dict(zip(found["column"], found["ours"], strict=True)) == {
        "pgd100_avg": 50.0,
        "pgd100_worst": 20.0,
        "pgd100_rho": 0.1,
    }


def swept(model: str, *grid: float) -> list[dict[str, object]]:
    """Rows of a temperature study whose total is 50 + 1/T."""
    own = {"airplane": 60.0, "change_airplane": -1.0, "change_total": -2.0}
    own |= {"cv_percent2": 200.0, "change_cv_percent2": 5.0, "mcd": 40.0, "change_mcd": 1.0}
    return [{"model": model, "inv_temperature": t, **own, "total": 50.0 + t} for t in grid]


def test_a_printed_temperature_finds_our_number_at_the_same_one() -> None:
    result = StudyResult({"float32": pd.DataFrame(swept("mart", 2.0, 5.0))})
    found = (
        reproduce.beside(reproduce.plan("tian2021:table3"), result).dropna(subset="ours").set_index("column")["ours"]
    )
    assert found.to_dict() == {
        "total": 55.0, "0": 60.0, "cv": 200.0, "mcd": 40.0,
        "change_total": -2.0, "change_0": -1.0, "change_cv": 5.0, "change_mcd": 1.0,
    }  # fmt: skip
    changes = reproduce.beside(reproduce.plan("tian2020:table4"), result).dropna(subset="ours")
    assert set(changes["row"]) == {"MART, 2"}  # 5 is not among the printed ones


def test_both_rows_of_hypersphere_embedding_find_their_own_temperature() -> None:
    result = StudyResult({"float32": pd.DataFrame(swept("he", 2.0, 5.0, 10.0, 50.0))})
    frame = reproduce.beside(reproduce.plan("tian2021:table3"), result)
    totals = frame[frame["column"] == "total"].set_index("row")["ours"].dropna()
    assert totals.to_dict() == {"HE, 5": 55.0, "HE, 50": 100.0}


def method_row(model: str, attack: str, average: float) -> dict[str, object]:
    return {
        "attack": attack, "model": model, "average": average, "worst": 20.0, "rho": 0.1, "cv_percent2": 250.0,
    }  # fmt: skip


def test_both_data_sets_of_wats_first_table_find_their_rows() -> None:
    tables = {
        "methods": pd.DataFrame([method_row("wat", "pgd-100", 50.0), method_row("frl_rw-own", "pgd-100", 1.0)]),
        "methods_cifar100": pd.DataFrame([method_row("cifar100-wat", "pgd-100", 25.0)]),
    }
    frame = reproduce.beside(reproduce.plan("li2023:table1", "paper"), StudyResult(tables)).dropna(subset="ours")
    averages = frame[frame["column"] == "pgd100_avg"].set_index("row")["ours"]
    assert averages.to_dict() == {"CIFAR-10, WAT": 50.0, "CIFAR-100, WAT": 25.0}


def test_each_attack_of_a_table_of_etas_finds_its_column_and_pgd_20_none() -> None:
    kinds = {"clean": 80.0, "pgd-20": 1.0, "pgd-100": 50.0, "margin_pgd-30": 48.0, "autoattack": 46.0}
    rows = [
        {"attack": attack, "method": method, "eta": eta, "average (%)": value + shift, "worst (%)": 20.0, "rho": 0.0}
        for attack, value in kinds.items()
        for method, eta, shift in (("base", math.nan, 0.5), ("wat", 0.1, 0.0))
    ]
    frame = reproduce.beside(reproduce.plan("li2023:table3"), StudyResult({"eta": pd.DataFrame(rows)}))
    ours = frame[frame["column"].str.endswith("_avg")].dropna(subset="ours").set_index(["row", "column"])["ours"]
    columns = {"natural_avg": 80.0, "pgd100_avg": 50.0, "cw_avg": 48.0, "autoattack_avg": 46.0}
    assert ours.to_dict() == {("WAT, 0.1", name): value for name, value in columns.items()} | {
        ("TRADES", name): value + 0.5 for name, value in columns.items()
    }


def test_predictions_on_a_white_background_stand_beside_the_printed_ones_with_their_change() -> None:
    names = CLASSES or ()
    rows = [
        {"model": model, "background": background, "prediction": prediction, "n": 500, **dict.fromkeys(names, count)}
        for model, background, count in (("trades", "white", 7), ("trades", "original", 5), ("trades-dog", "white", 8),
                                         ("trades-dog", "original", 9), ("trades", "black", 1))
        for prediction in ("natural", "adversarial")
    ]  # fmt: skip
    frame = reproduce.beside(reproduce.plan("tian2021:table4"), StudyResult({"predictions": pd.DataFrame(rows)}))
    assert "line" not in set(frame["column"])
    ours = frame.set_index(["row", "column"])["ours"]
    for kind in ("Natural", "Adversarial"):
        assert ours[f"Original image ({kind})", "3"] == 10.0  # of 1000 images
        assert ours[f"+ white background ({kind})", "3"] == 14.0
        assert ours[f"+ white background ({kind})", "change_3"] == 4.0
        assert ours[f"+ training adjustment method ({kind})", "3"] == 16.0
        assert ours[f"+ training adjustment method ({kind})", "change_3"] == 6.0


def test_printed_numbers_come_first_and_misprints_and_differences_are_said() -> None:
    chosen = reproduce.plan("tian2021:table1", "desk")
    result = reproduce.with_printed_numbers(chosen, attacks_outcome())
    assert next(iter(result.tables)) == "printed_and_measured"
    assert any("width 16" in note for note in result.notes)
    assert not any("width 16" in note for note in reproduce.plan("tian2021:table1", "paper").sentences)


def test_the_paper_costs_more_than_the_desk() -> None:
    workspace, paper = (reproduce.hours(reproduce.plan("tian2021:figure4c", scale)) for scale in ("desk", "paper"))
    assert workspace is not None
    assert paper is not None
    assert 0 < 100 * workspace < paper < math.inf
