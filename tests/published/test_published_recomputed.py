"""Every printed number that follows from others does, or is a listed misprint; and none is listed that agrees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from classwise import published
from classwise.published import numbers


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return published.recomputed()


@pytest.fixture
def other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the printed numbers that the package reads instead, so that one can be changed."""
    for path in numbers.HOME.glob("*.csv"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(numbers, "HOME", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    numbers.printed.cache_clear()
    numbers.printed_statements.cache_clear()


def wrong(rows: pd.DataFrame) -> set[tuple[str, str, str]]:
    found = rows[rows["verdict"] == "misprint"]
    return set(zip(found["item"], found["row"], found["column"], strict=True))


def listed() -> dict[tuple[str, str, str], published.Misprint]:
    return {(e.id, m.row, m.column): m for e in published.items() for m in e.misprints}


def test_what_does_not_follow_is_exactly_what_is_listed(rows: pd.DataFrame) -> None:
    assert wrong(rows) == set(listed())


def test_a_listed_misprint_is_printed_so_and_expected_so(rows: pd.DataFrame) -> None:
    by_place = rows.set_index(["item", "row", "column"])
    for place, misprint in listed().items():
        printed, value, allowed = by_place.loc[place, ["printed", "recomputed", "allowed"]]
        assert printed == misprint.printed, place
        assert value == pytest.approx(misprint.expected, abs=max(allowed, 1e-9)), place
        assert misprint.why, place


def test_every_printed_cv_mcd_and_rho_is_there(rows: pd.DataFrame) -> None:
    counts = rows.groupby("item")["column"].value_counts()
    for name, size in (("tian2021:table1", 20), ("tian2021:table3", 5)):
        assert counts[name, "cv"] == counts[name, "mcd"] == counts[name, "total"] == size
    rho = rows[rows["column"].str.endswith("_rho")].groupby("item").size()
    assert rho.to_dict() == {f"li2023:table{n}": size for n, size in ((1, 32), (2, 16), (3, 16), (4, 4), (5, 12))}
    assert not rows.duplicated(["item", "row", "column"]).any()
    assert rows["recomputed"].notna().all()


def test_by_hand(rows: pd.DataFrame) -> None:
    by_place = rows.set_index(["item", "row", "column"])["recomputed"]
    # (36.6 − 25.2)/25.2 − (51.69 − 49.13)/51.69
    assert by_place["li2023:table1", "CIFAR-10, WAT", "pgd100_rho"] == pytest.approx(0.452381 - 0.049526, abs=1e-6)
    assert by_place["tian2021:table3", "HE, inv_temperature=50", "mcd"] == pytest.approx(71.8 - 17.6)
    assert by_place["tian2021:table1", "Madry, pgd", "cv"] == pytest.approx(224.3649)


def test_the_misprinted_cv_is_explained_by_the_submission(other_files: Path) -> None:
    change(other_files / "tian2021_table1.csv", "93.7,90.0,99.2", "93.7,90.2,99.2")
    assert ("tian2021:table1", "MART, transfer", "cv") not in wrong(published.recomputed())


def test_one_wrong_digit_is_noticed(other_files: Path) -> None:
    change(other_files / "tian2021_table1.csv", "Madry,pgd,52.1,63.8", "Madry,pgd,52.1,63.3")
    change(other_files / "li2023_table2.csv", "34.9,0.458", "34.9,0.459")
    change(other_files / "tian2020_table4.csv", "TRADES,7,-1.69", "TRADES,7,-1.68")
    assert wrong(published.recomputed()) - set(listed()) == {
        ("tian2021:table1", "Madry, pgd", "cv"),
        ("tian2021:table3", "Madry, inv_temperature=2", "change_0"),
        ("li2023:table2", "WAT", "pgd100_rho"),
        ("tian2020:table4", "TRADES, inv_temperature=7", "change_total"),
    }


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")
