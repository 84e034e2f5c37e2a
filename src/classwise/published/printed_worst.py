"""The worst-class accuracies that the papers print, one row per model and attack, to stand beside measured ones.

li2023 tables 1 and 2 print the worst class itself; of tian2021 tables 1 and 3 and tian2020 tables 2 and 5 it is the
lowest of the printed class accuracies. tian2020 is the submission of tian2021: of its table 2 only the defences that
the later paper left out are taken. What later papers print of fairer methods is in fair_methods.csv.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.records import Array
from classwise.core.spec import number
from classwise.metrics import cv, mcd
from classwise.published.fair_methods import fair_methods
from classwise.published.numbers import printed, table
from classwise.published.paper_settings import NOT_STATED, StatedAttack, StatedRun, settings
from classwise.published.recompute import CLASSES

COLUMNS = [
    "item", "data", "method", "network", "kind", "attack", "norm", "eps", "clean", "average", "worst", "worst_class",
    "cv", "mcd", "classes",
]  # fmt: skip
_SAME_RADIUS = 0.02  # 0.031 is how tian2021 writes 8/255
_SIZES = {"cifar10": 10, "cifar100": 100}
_DATA = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
_ATTACKS = {"pgd100": "pgd", "cw": "margin_pgd", "autoattack": "autoattack", "cw_inf": "cw"}


@functools.cache
def worst_classes() -> pd.DataFrame:
    """Every printed model and attack; accuracies are fractions, `cv` in percent², NaN or None what is not printed.

    Columns: item (of `published.items`, or paper and place of fair_methods.csv), data, method and network, kind (the
    attack's name here), attack (as the paper states it), norm, eps, clean, average, worst, worst_class (its number),
    cv, mcd, classes (every class, or None).
    """
    newer = [*_tian("tian2021:table1"), *_tian("tian2021:table3")]
    older = [row for row in _tian("tian2020:table2") if row["method"] not in {own["method"] for own in newer}]
    rows = [*_li("li2023:table1"), *_li("li2023:table2"), *newer, *_hypersphere("tian2020:table5"), *older, *_fairer()]
    return pd.DataFrame(rows, columns=COLUMNS)


def beside(data: str, classes: int, norm: str, eps: float, attacks: Sequence[str]) -> pd.DataFrame:
    """The printed rows to be shown beside models audited so: of the same data, norm and radius under the same kind of
    attack, though its steps may differ. Beside the worst case over several attacks only AutoAttack's stand; beside an
    audit of some of the `classes`, whose worst is another question, none."""
    kinds = {name.partition(":")[0].partition("-")[0] for name in attacks}
    kinds = kinds if len(kinds) == 1 else kinds & {"autoattack"}
    rows = worst_classes()
    near = (rows["eps"] - eps).abs() <= _SAME_RADIUS * eps
    name = data.partition(":")[0]
    near &= classes == _SIZES.get(name)
    return rows[(rows["data"] == name) & (rows["norm"] == norm) & near & rows["kind"].isin(kinds)]


def _li(item: str) -> Iterator[dict[str, Any]]:
    for _, row in table(item).iterrows():
        run = _run(item, str(row["method"]), _DATA[str(row.get("dataset", "CIFAR-10"))])
        for column in ("pgd100", "cw", "autoattack"):
            yield {
                **_about(item, run, _ATTACKS[column]),
                "clean": row["natural_avg"] / 100,
                "average": row[f"{column}_avg"] / 100,
                "worst": row[f"{column}_worst"] / 100,
                "cv": np.nan,
                "mcd": np.nan,
            }


def _tian(item: str) -> Iterator[dict[str, Any]]:
    for _, row in table(item).iterrows():
        name, sharper = str(row.get("attack", "temperature_pgd")), row.get("inv_temperature")
        about = _about(item, _run(item, str(row["defense"]), "cifar10"), _ATTACKS.get(name, name))
        about["attack"] += "" if sharper is None else f", 1/T = {sharper:g}"
        own = {"average": row["total"] / 100, "cv": row.get("cv"), "mcd": row["mcd"] / 100 if "mcd" in row else None}
        printed = {key: value for key, value in own.items() if value is not None}
        yield {**about, **_of_classes(row[CLASSES].to_numpy(dtype=float) / 100), **printed}


def _hypersphere(item: str) -> Iterator[dict[str, Any]]:
    """The first row as it is; of the others the table prints how much each class gained on it."""
    texts, base = printed(item), np.zeros(len(CLASSES))
    for _, row in texts.iterrows():
        values = row[CLASSES].to_numpy(dtype=float) / 100
        base = values if not str(row["0"]).startswith(("+", "-")) else base
        own = values if values is base else base + values
        run = _run(item, str(row["defense"]), "cifar10")
        yield {**_about(item, run, "pgd"), **_of_classes(own), "clean": float(row["natural"]) / 100}


def _fairer() -> Iterator[dict[str, Any]]:
    """Methods as their tables name them, since one paper has the same method on several bases; all at 8/255."""
    for _, row in fair_methods().iterrows():
        for kind in ("pgd", "autoattack"):
            if pd.notna(row[kind]) and pd.notna(row[f"worst_{kind}"]):
                yield {
                    **{name: row[name] for name in ("data", "network")},
                    "item": f"{row['paper']}:{row['place']}",
                    "method": row["printed"],
                    "kind": kind,
                    "attack": f"{kind}, eps 8/255",
                    "norm": "linf",
                    "eps": 8 / 255,
                    "clean": row["clean"] / 100,
                    "average": row[kind] / 100,
                    "worst": row[f"worst_{kind}"] / 100,
                    "worst_class": None,
                    "cv": np.nan,
                    "mcd": np.nan,
                    "classes": None,
                }


def _of_classes(values: Array) -> dict[str, Any]:
    """What follows from the printed accuracies of the classes."""
    return {
        "clean": np.nan,
        "average": float(values.mean()),
        "worst": float(values.min()),
        "worst_class": int(values.argmin()),
        "cv": cv.of(values),
        "mcd": mcd.of(values),
        "classes": values.tolist(),
    }


def _run(item: str, method: str, data: str) -> StatedRun:
    """What the paper states of a row's model."""
    name = method.lower().replace("-", "_")
    return next(run for run in settings(item).runs if (run.data, run.method) == (data, name))


def _about(item: str, run: StatedRun, kind: str) -> dict[str, Any]:
    attack = next(own for own in run.attacks if own.attack == kind)
    eps = np.nan if attack.eps == NOT_STATED else number(attack.eps)
    own = {"item": item, "data": run.data, "method": run.method, "network": run.training.network, "kind": kind}
    return {**own, "attack": _text(attack), "norm": attack.norm, "eps": eps, "worst_class": None, "classes": None}


def _text(attack: StatedAttack) -> str:
    """An attack in words: pgd, 100 steps of 0.003, eps 8/255."""
    steps = "" if attack.steps == NOT_STATED else f", {attack.steps} steps"
    size = "" if attack.step == NOT_STATED else f" of {attack.step}" if steps else f", step {attack.step}"
    return f"{attack.attack}{steps}{size}" + ("" if attack.eps == NOT_STATED else f", eps {attack.eps}")
