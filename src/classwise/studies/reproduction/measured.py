"""A study's tables in the shape of the printed ones: for each printed table, which of our numbers stands where.

Each function gives lines: the labels that name a printed row (as far as the study has them) and its numbers by the
printed column's name. Numbers are in the units of the print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pandas as pd

from classwise import spec
from classwise.studies.frame.outcome import Outcome

Line: TypeAlias = "tuple[dict[str, str], dict[str, float]]"
Reader: TypeAlias = "Callable[[Outcome, Mapping[str, str]], Iterator[Line]]"

_FRACTION = 1e-4  # li2023 prints CV in fractions squared
_IMAGES = 1000  # test images of a class of CIFAR-10, which KDD Table 4 counts
_ATTACKS = {"cw": "cw_inf"}
_METHOD_ATTACKS = {"clean": "natural", "pgd": "pgd100", "margin_pgd": "cw", "autoattack": "autoattack"}


def _attack(text: str) -> str:
    return spec.leading(spec.split(text)[0])[0]


def _classes(row: pd.Series[Any], numbers: Mapping[str, str], prefix: str = "") -> dict[str, float]:
    """The class columns of a row by the classes' printed numbers."""
    found = {prefix + number: row.get(name, row.get(f"{name} (class)")) for number, name in numbers.items()}
    return {column: float(value) for column, value in found.items() if value is not None}


def attacks(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 1, ICLR Table 2: defence and attack; total, classes, CV, MCD."""
    for _, row in outcome.tables["robustness"].iterrows():
        name = _attack(str(row["attack"]))
        values = {"total": row["total"], "cv": row["cv_percent2"], "mcd": row["mcd"], **_classes(row, numbers)}
        yield {"defense": str(row["model"]), "attack": _ATTACKS.get(name, name)}, values


def best_temperature(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 3, ICLR Table 3: each defence at its best 1/T in plain float32, as the papers computed it."""
    best = outcome.tables["best"]
    chosen = best[best["variant"] == "float32"].set_index("model")["inv_temperature"]
    for _, row in outcome.tables["float32"].iterrows():
        if row["inv_temperature"] == chosen[row["model"]]:
            yield {"defense": str(row["model"])}, _with_changes(row, numbers)


def temperature_changes(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """ICLR Table 4: change against PGD at several 1/T."""
    for _, row in outcome.tables["float32"].iterrows():
        labels = {"defense": str(row["model"]), "inv_temperature": f"{row['inv_temperature']:g}"}
        yield labels, _with_changes(row, numbers)


def _with_changes(row: pd.Series[Any], numbers: Mapping[str, str]) -> dict[str, float]:
    ours = {"total": "total", "cv": "cv_percent2", "mcd": "mcd", **numbers}
    found: dict[str, float] = {}
    for printed, name in ours.items():
        if name in row.index:
            found |= {printed: float(row[name]), f"change_{printed}": float(row[f"change_{name}"])}
    return found


def hypersphere_classes(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """ICLR Table 5: under PGD, the base's accuracy and the others' gain, class by class."""
    for _, row in outcome.tables["pgd"].iterrows():
        values = {"natural": float(row["natural"]), "pgd20": float(row["pgd"]), **_classes(row, numbers)}
        yield {"defense": str(row["model"])}, values


def hypersphere_sweep(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """ICLR Table 6: robust accuracy at each 1/T in plain float32."""
    for _, row in outcome.tables["float32"].iterrows():
        yield {"defense": str(row["model"])}, {str(t): float(value) for t, value in row.drop("model").items()}


def class_bias(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 5: CV and MCD of clean accuracy after standard, of robustness after adversarial training."""
    for _, row in outcome.tables["spread"].iterrows():
        standard = "standard" in str(row["model"])
        if (row["accuracy"] == "clean") != standard:
            continue
        kind = "standard" if standard else "adversarial"
        yield {"dataset": str(row["data"])}, {f"{kind}_cv": row["CV (%²)"], f"{kind}_mcd": row["MCD (%)"]}


def backgrounds(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 4: predictions for a class, for 1000 images of it, of the first model and of the adjusted one."""
    table = outcome.tables["predictions"]
    first = table["model"].iloc[0]
    for _, row in table.iterrows():
        own, white = row["model"] == first, row["background"] == "white"
        if row["background"] == "original" and own:
            line = "Original image"
        elif white:
            line = "white background" if own else "training adjustment method"
        else:
            continue
        each = {column: value * _IMAGES / row["n"] for column, value in _classes(row, numbers).items()}
        yield {"test_set": f"{line} ({row['prediction']})"}, each


def fairness(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """WAT's Tables 1, 2, 4, 5: average, worst, CV and ρ of each method under each attack."""
    for _, row in outcome.tables["methods"].iterrows():
        kind = _METHOD_ATTACKS.get(_attack(str(row["attack"])))
        if kind is not None:
            values = {"avg": row["average"], "worst": row["worst"], "rho": row["rho"]}
            values["cv"] = row["cv_percent2"] * _FRACTION
            yield {"method": str(row["model"])}, {f"{kind}_{name}": float(value) for name, value in values.items()}


def eta(outcome: Outcome, numbers: Mapping[str, str]) -> Iterator[Line]:
    """WAT's Table 3: average, worst and ρ for several η."""
    for _, row in outcome.tables["eta"].iterrows():
        kind = _METHOD_ATTACKS.get(_attack(str(row["attack"])))
        if kind is not None:
            base = row["method"] == "base"
            labels = {"method": "TRADES"} if base else {"method": "WAT", "eta": f"{row['eta']:g}"}
            yield (
                labels,
                {f"{kind}_avg": row["average (%)"], f"{kind}_worst": row["worst (%)"], f"{kind}_rho": row["rho"]},
            )


READERS: dict[str, Reader] = {
    "tian2021:table1": attacks,
    "tian2020:table2": attacks,
    "tian2021:table3": best_temperature,
    "tian2020:table3": best_temperature,
    "tian2020:table4": temperature_changes,
    "tian2020:table5": hypersphere_classes,
    "tian2020:table6": hypersphere_sweep,
    "tian2021:table4": backgrounds,
    "tian2021:table5": class_bias,
    "li2023:table1": fairness,
    "li2023:table2": fairness,
    "li2023:table4": fairness,
    "li2023:table5": fairness,
    "li2023:table3": eta,
}
