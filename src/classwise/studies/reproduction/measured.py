"""A study's tables in the layout of the printed ones: for each printed table, which of our numbers belongs where.

Each function yields lines: the labels that name a printed row (as far as the study has them) and its numbers by the
printed column's name. Numbers are in the printed units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pandas as pd

from classwise.core import spec
from classwise.studies.runner.result import StudyResult

Line: TypeAlias = "tuple[dict[str, str], dict[str, float]]"
Reader: TypeAlias = "Callable[[StudyResult, Mapping[str, str]], Iterator[Line]]"

_FRACTION = 1e-4  # li2023 prints CV in fractions squared
_IMAGES = 1000  # test images of a class of CIFAR-10, which KDD Table 4 counts
_ATTACKS = {"cw": "cw_inf"}
_METHOD_ATTACKS = {"clean": "natural", "margin_pgd": "cw", "autoattack": "autoattack"}


def _attack(text: str) -> str:
    return spec.leading(spec.split(text)[0])[0]


def _classes(row: pd.Series[Any], numbers: Mapping[str, str], prefix: str = "") -> dict[str, float]:
    """The class columns of a row by the classes' printed numbers."""
    found = {prefix + number: row.get(name, row.get(f"{name} (class)")) for number, name in numbers.items()}
    return {column: float(value) for column, value in found.items() if value is not None}


def attacks(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 1, ICLR Table 2: defence and attack; total, classes, CV, MCD."""
    for _, row in result.tables["robustness"].iterrows():
        name = _attack(str(row["attack"]))
        values = {"total": row["total"], "cv": row["cv_percent2"], "mcd": row["mcd"], **_classes(row, numbers)}
        yield {"defense": str(row["model"]), "attack": _ATTACKS.get(name, name)}, values


def temperatures(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 3, ICLR Tables 3 and 4: each defence at each 1/T in plain float32, as the papers computed it.

    A printed row is compared at its own 1/T, even if another 1/T breaks more here.
    """
    for _, row in result.tables["float32"].iterrows():
        labels = {"defense": str(row["model"]), "inv_temperature": f"{row['inv_temperature']:g}"}
        yield labels, _with_changes(row, numbers)


def _with_changes(row: pd.Series[Any], numbers: Mapping[str, str]) -> dict[str, float]:
    ours = {"total": "total", "cv": "cv_percent2", "mcd": "mcd", **numbers}
    found: dict[str, float] = {}
    for printed, name in ours.items():
        if name in row.index:
            found |= {printed: float(row[name]), f"change_{printed}": float(row[f"change_{name}"])}
    return found


def hypersphere_classes(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """ICLR Table 5: under PGD, the base's accuracy and the others' gain, class by class."""
    for _, row in result.tables["pgd"].iterrows():
        values = {"natural": float(row["natural"]), "pgd20": float(row["pgd"]), **_classes(row, numbers)}
        yield {"defense": str(row["model"])}, values


def hypersphere_sweep(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """ICLR Table 6: robust accuracy at each 1/T in plain float32."""
    for _, row in result.tables["float32"].iterrows():
        yield {"defense": str(row["model"])}, {str(t): float(value) for t, value in row.drop("model").items()}


def class_bias(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 5: CV and MCD of clean accuracy after standard, of robustness after adversarial training."""
    for _, row in result.tables["spread"].iterrows():
        standard = "standard" in str(row["model"])
        if (row["accuracy"] == "clean") != standard:
            continue
        kind = "standard" if standard else "adversarial"
        yield {"dataset": str(row["data"])}, {f"{kind}_cv": row["CV (%²)"], f"{kind}_mcd": row["MCD (%)"]}


def backgrounds(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """KDD Table 4: predictions for a class, for 1000 images of it, of the first model and of the adjusted one."""
    table = result.tables["predictions"]
    first = table["model"].iloc[0]
    before: dict[str, dict[str, float]] = {}
    for _, row in table.sort_values("background", key=lambda names: names != "original", kind="stable").iterrows():
        own, white, prediction = row["model"] == first, row["background"] == "white", str(row["prediction"])
        each = {column: value * _IMAGES / row["n"] for column, value in _classes(row, numbers).items()}
        if row["background"] == "original" and own:
            before[prediction] = each
            yield {"test_set": f"Original image ({prediction})"}, each
        elif white:
            line = "white background" if own else "training adjustment method"
            changes = {f"change_{c}": each[c] - value for c, value in before.get(prediction, {}).items()}
            yield {"test_set": f"{line} ({prediction})"}, {**each, **changes}


def fairness(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """WAT's Tables 1, 2, 4, 5: average, worst, CV and ρ of each method under each attack, of each data set."""
    for name, table in result.tables.items():
        head, _, data = name.partition("_")
        if head != "methods":
            continue
        for _, row in table.iterrows():
            kind = _printed_attack(str(row["attack"]))
            if kind is None:
                continue
            values = {"avg": row["average"], "worst": row["worst"], "rho": row["rho"]}
            values["cv"] = row["cv_percent2"] * _FRACTION
            labels = {"method": str(row["model"]).removeprefix(f"{data}-"), **({"dataset": data} if data else {})}
            yield labels, {f"{kind}_{key}": float(value) for key, value in values.items()}


def eta(result: StudyResult, numbers: Mapping[str, str]) -> Iterator[Line]:
    """WAT's Table 3: average, worst and ρ for several η."""
    for _, row in result.tables["eta"].iterrows():
        kind = _printed_attack(str(row["attack"]))
        if kind is not None:
            base = row["method"] == "base"
            labels = {"method": "TRADES"} if base else {"method": "WAT", "eta": f"{row['eta']:g}"}
            values = {"avg": row["average (%)"], "worst": row["worst (%)"], "rho": row["rho"]}
            yield labels, {f"{kind}_{key}": float(value) for key, value in values.items()}


def _printed_attack(text: str) -> str | None:
    """The column of WAT's tables that an attack belongs to: PGD only with their 100 steps."""
    name, options = spec.split(text)
    name, steps = spec.leading(name)
    if name == "pgd":
        return "pgd100" if options.get("steps", steps) == "100" else None
    return _METHOD_ATTACKS.get(name)


READERS: dict[str, Reader] = {
    "tian2021:table1": attacks,
    "tian2020:table2": attacks,
    "tian2021:table3": temperatures,
    "tian2020:table3": temperatures,
    "tian2020:table4": temperatures,
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
