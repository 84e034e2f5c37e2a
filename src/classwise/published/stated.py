"""Statements of the text about the tables, computed from them: ratios, ranges, gains and best settings."""

from __future__ import annotations

from typing import Any

import pandas as pd

from classwise.published.numbers import table

_ATTACKS = ("pgd100", "cw", "autoattack")


def stated() -> dict[tuple[str, str], float]:
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
