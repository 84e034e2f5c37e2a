"""The printed worst classes: as the papers print them, each model and attack once."""

from __future__ import annotations

import numpy as np
import pytest

from classwise.published import table, worst_classes
from classwise.published.printed_worst import beside


def test_numbers_as_printed() -> None:
    rows = worst_classes().set_index(["item", "method", "data", "kind"])
    wat = rows.loc["li2023:table1", "wat", "cifar100", "autoattack"]
    assert (wat["worst"], wat["average"], wat["clean"], wat["network"]) == (0.03, 0.2289, 0.5399, "resnet-18")
    madry = rows.loc["tian2021:table1", "madry", "cifar10", "pgd"]
    assert (madry["worst"], madry["worst_class"], madry["cv"]) == (0.253, 3, 224.3)
    assert madry["mcd"] == pytest.approx(0.463)
    he = rows.loc["tian2020:table5", "he", "cifar10", "pgd"]
    assert he["worst"] == pytest.approx(0.221 + 0.122)  # printed as what it gained on Madry
    assert "rst" in worst_classes()["method"].tolist()
    assert "trades" not in rows.loc["tian2020:table2"].index.get_level_values("method")


def test_every_row_is_there_once() -> None:
    rows = worst_classes()
    assert not rows.duplicated(["item", "method", "network", "data", "kind", "attack"]).any()
    assert ((rows["worst"] > 0) & (rows["worst"] < rows["average"])).all()
    assert len(rows[rows["item"] == "li2023:table1"]) == 3 * len(table("li2023:table1"))


def test_the_mean_of_the_classes_is_the_printed_total() -> None:
    """Where they differ the paper has a misprint, or truncates."""
    rows = worst_classes().dropna(subset=["classes"])
    means = np.array([np.mean(own) for own in rows["classes"]])
    assert np.abs(means - rows["average"]).max() < 0.0015


@pytest.mark.parametrize(
    ("data", "classes", "eps", "attacks", "kinds"),
    [
        ("cifar10", 10, 8 / 255, ["autoattack"], {"autoattack"}),
        ("cifar10", 10, 8 / 255, ["pgd:steps=50"], {"pgd"}),
        ("cifar10", 10, 8 / 255, ["pgd-20", "autoattack"], {"autoattack"}),
        ("cifar10", 10, 8 / 255, ["pgd-20", "fgsm"], set()),
        ("cifar10", 10, 4 / 255, ["pgd-20"], set()),
        ("cifar10", 3, 8 / 255, ["pgd-20"], set()),
        ("mnist", 10, 0.3, ["pgd-40"], set()),
    ],
)
def test_what_stands_beside_an_audit(data: str, classes: int, eps: float, attacks: list[str], kinds: set[str]) -> None:
    assert set(beside(data, classes, "linf", eps, attacks)["kind"]) == kinds
    assert beside(data, classes, "l2", eps, attacks).empty
