"""Printed numbers, recomputed from the numbers printed beside them.

    CV, MCD, mean     from the class accuracies of the row         tian2021 tables 1, 3, tian2020 tables 2, 4, 5
    change            from the two rows it is between              tian2021 tables 3, 4, tian2020 table 3
    ρ                 from averages and worst classes              li2023 tables 1 to 5
    and statements of the text about a table: ratios, ranges, best values

The class accuracies of CIFAR-10 are whole numbers of a thousand images, so in tenths of a percent they are exact, and
only the last digit of the result is lost: truncated (tian2021, in floating point: 84.6 − 42.2 is printed 42.3) or
rounded. Where the row's accuracies are not printed (CV of li2023, most of tian2021 table 5) nothing can be recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from classwise.metrics import cv, mcd, rho
from classwise.published.index import item
from classwise.published.numbers import LABELS, printed, printed_statements, table

#: CIFAR-10, the only data set whose class accuracies are printed.
CLASSES = [str(number) for number in range(10)]
_CHANGES = [f"change_{number}" for number in CLASSES]
_SETTINGS = ("inv_temperature", "eta")  # which name a row by a number
_ATTACKS = ("pgd100", "cw", "autoattack")
_ROUNDING = 1e-9  # of floating point


@dataclass(frozen=True, kw_only=True)
class _Number:
    """A printed number, with all its digits, and what it should be."""

    item: str
    row: str
    column: str
    text: str
    value: float
    exact: bool = False


def recomputed() -> pd.DataFrame:
    """Every printed number that follows from others.

    Columns: item, row (`text` for the running text), column, printed, recomputed, difference, allowed, verdict. A
    number agrees if recomputed − printed is within ±allowed, or where the paper truncates digits from 0 to allowed;
    otherwise it is a misprint, and listed as one with its item.
    """
    return pd.DataFrame([_compare(number) for number in _numbers()])


def _compare(number: _Number) -> dict[str, object]:
    shown, truncated = float(number.text), item(number.item).digits == "truncated"
    unit = 10.0 ** -len(number.text.partition(".")[2])
    allowed = 0.0 if number.exact else unit if truncated else unit / 2
    difference = number.value - shown
    agrees = (0 if truncated else -allowed) - _ROUNDING <= difference <= allowed + _ROUNDING
    return {
        "item": number.item,
        "row": number.row,
        "column": number.column,
        "printed": shown,
        "recomputed": number.value,
        "difference": difference,
        "allowed": allowed,
        "verdict": "agrees" if agrees else "misprint",
    }


def _numbers() -> Iterator[_Number]:
    for name in ("tian2021:table1", "tian2021:table3"):
        accuracies = table(name)[CLASSES] / 100
        yield from _column(name, "total", 100 * accuracies.mean(axis=1))
        yield from _column(name, "cv", accuracies.apply(lambda row: cv.of(row.to_numpy()), axis=1))
        yield from _column(name, "mcd", accuracies.apply(lambda row: 100 * mcd.of(row.to_numpy()), axis=1))
    yield from _column("tian2020:table2", "total", table("tian2020:table2")[CLASSES].mean(axis=1))
    yield from _column("tian2020:table4", "change_total", table("tian2020:table4")[_CHANGES].mean(axis=1))
    yield from _hypersphere()
    yield from _changes()
    for number in (1, 2, 3, 4, 5):
        yield from _rho(f"li2023:table{number}")
    yield from _statements()


def _column(name: str, column: str, values: pd.Series[float]) -> Iterator[_Number]:
    """A column of a table beside its values; a row without a value is left out."""
    cells = printed(name)
    labels = [label for label in LABELS if label in cells]
    for row, value in zip(cells.to_dict("records"), values, strict=True):
        if not pd.isna(value):
            named = [f"{key}={row[key]}" if key in _SETTINGS else row[key] for key in labels if row[key]]
            yield _Number(item=name, row=", ".join(named), column=column, text=row[column], value=value)


def _hypersphere() -> Iterator[_Number]:
    """Table 5 of tian2020 gives its later rows as changes against the first; table 6 begins with its totals."""
    rows = table("tian2020:table5")
    classes = rows[CLASSES].copy()
    classes.iloc[1:] += classes.iloc[0]
    yield from _column("tian2020:table5", "pgd20", classes.mean(axis=1))
    yield from _column("tian2020:table6", "inv_temperature_1", rows["pgd20"])
    model = classes.iloc[0].to_numpy() / 100  # Madry's ResNet-18 is the CIFAR-10 row of tian2021 table 5
    of_cifar10 = table("tian2021:table5")["dataset"] == "CIFAR-10"
    for column, value in (("adversarial_cv", cv.of(model)), ("adversarial_mcd", 100 * mcd.of(model))):
        yield from _column("tian2021:table5", column, pd.Series(value, of_cifar10.index).where(of_cifar10))


def _changes() -> Iterator[_Number]:
    """Differences of two rows; of numbers given in tenths they are exact once rounded."""
    attacked, rows = table("tian2021:table1"), table("tian2021:table3")
    before = attacked[attacked["attack"] == "pgd"].set_index("defense").loc[rows["defense"]].reset_index()
    for column in ("total", *CLASSES, "cv", "mcd"):
        yield from _column("tian2021:table3", f"change_{column}", (rows[column] - before[column]).round(1))

    attacked, rows = table("tian2020:table2"), table("tian2020:table3")
    before = attacked[attacked["attack"] == "pgd"].set_index("defense").loc[rows["defense"]].reset_index()
    yield from _column("tian2020:table3", "change_total", (rows["total"] - before["total"]).round(1))

    rows = table("tian2021:table4")
    original = rows["test_set"].str.contains("Original")
    before = rows[CLASSES].where(original).ffill()
    for column in CLASSES:
        yield from _column("tian2021:table4", f"change_{column}", (rows[column] - before[column]).where(~original))


def _rho(name: str) -> Iterator[_Number]:
    """ρ against TRADES, the first row of each data set."""
    rows = table(name)
    group = rows.get("dataset", pd.Series("", rows.index))
    base = rows.groupby(group).transform("first")
    for attack in rows.columns[rows.columns.str.endswith("_rho")].str.removesuffix("_rho"):
        average, worst = f"{attack}_avg", f"{attack}_worst"
        of_rows = zip(rows[worst], rows[average], base[worst], base[average], strict=True)
        values = pd.Series([rho.of(*numbers) for numbers in of_rows], rows.index)
        yield from _column(name, f"{attack}_rho", values.where(rows["method"] != "TRADES"))


def _statements() -> Iterator[_Number]:
    printed_rows = printed_statements().set_index(["item", "quantity"])
    for (name, quantity), value in _stated().items():
        text, unit = printed_rows.loc[(name, quantity), ["value", "unit"]]
        exact = unit == "setting"
        yield _Number(item=name, row="text", column=quantity, text=str(text), value=value, exact=exact)


# ---- statements of the text about the tables ----------------------------------------------------------------------


def _stated() -> dict[tuple[str, str], float]:
    """By item and quantity, as in `statements`, what the number in the text should be; only those that follow."""
    return {**_adversarial_and_standard(), **_temperature(), **_gains(), **_best_eta()}


def _adversarial_and_standard() -> dict[tuple[str, str], float]:
    """Ratios and gaps of tian2021 table 5; the submission shows the same gaps in figure 7."""
    rows: dict[Any, Any] = table("tian2021:table5").set_index("dataset").to_dict("index")
    values = {}
    for metric in ("cv", "mcd"):
        quantity = f"CIFAR-10: {metric.upper()} of adversarial over standard training"
        row = rows["CIFAR-10"]
        values["tian2021:table5", quantity] = row[f"adversarial_{metric}"] / row[f"standard_{metric}"]
    for dataset in ("CIFAR-10", "CIFAR-100", "SVHN", "STL-10"):
        for training in ("standard", "adversarial"):
            quantity = f"{dataset}: largest gap, {training} training"
            values["tian2020:figure7", quantity] = rows[dataset][f"{training}_mcd"]
    return values


def _temperature() -> dict[tuple[str, str], float]:
    """Losses under Temperature-PGD, and TRADES with β = 6 throughout, from which the β of class 5 is lowered."""
    rows = table("tian2021:table3")
    trades = rows[rows["defense"] == "TRADES"]
    values = {("tian2021:figure4c", f"class {c} at β₅ = 6"): float(trades[str(c)].iloc[0]) for c in (3, 5)}
    losses = -table("tian2020:table3").set_index("defense").drop("Madry")
    for column, what in (("change_total", "in total"), ("change_4", "of class 4")):
        values["tian2020:table3", f"least loss {what}, without Madry"] = losses[column].min()
        values["tian2020:table3", f"greatest loss {what}, without Madry"] = losses[column].max()
    return values


def _gains() -> dict[tuple[str, str], float]:
    """The worst class of WAT less that of the best other method."""
    gain = "gain in the worst class over the best other method"
    values = {
        ("li2023:table1", f"{dataset}: {gain}, {attack}"): _gain(rows, attack)
        for dataset, rows in table("li2023:table1").groupby("dataset")
        for attack in _ATTACKS
    }
    least = min(_gain(table("li2023:table2"), attack) for attack in _ATTACKS)
    return {**values, ("li2023:table2", f"{gain}, least of three attacks"): least}


def _gain(rows: pd.DataFrame, attack: str) -> float:
    worst = rows.set_index("method")[f"{attack}_worst"]
    return float(worst["WAT"] - worst.drop("WAT").max())


def _best_eta() -> dict[tuple[str, str], float]:
    rows = table("li2023:table3").dropna(subset="eta")
    return {
        ("li2023:table3", f"η of the best {attack} ρ"): float(rows["eta"].iloc[rows[f"{attack}_rho"].argmax()])
        for attack in ("natural", *_ATTACKS)
    }
