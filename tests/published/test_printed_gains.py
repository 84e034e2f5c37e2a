"""What later papers print of fairer methods: rows that name known methods, and gains over the rows they belong to."""

from __future__ import annotations

import numpy as np
import pytest

from classwise import methods
from classwise.published import fair_methods, printed_gains
from classwise.published.fair_methods import CITATIONS


def test_every_paper_has_a_citation_and_every_method_is_one_of_ours() -> None:
    rows = fair_methods()
    assert set(rows["paper"]) == set(CITATIONS)
    assert set(rows["method"]) - {""} <= set(methods.names())
    numbers = rows[["clean", "worst_clean", "pgd", "worst_pgd", "autoattack", "worst_autoattack"]].to_numpy()
    assert ((numbers >= 0) & (numbers <= 100) | np.isnan(numbers)).all()


@pytest.mark.parametrize(
    ("method", "paper", "worst", "average"),
    [
        ("dafa", "lee2024dafa", 30.53 - 21.31, 49.05 - 49.80),
        ("cfol", "pethick2022cfol", 20 - 12, 40 - 41),
        ("wat", "li2023", 30.1 - 21.7, 46.04 - 48.64),
        ("csl", "li2023", 29.2 - 21.7, 40.32 - 48.64),
    ],
)
def test_a_gain_is_the_row_less_the_one_it_is_compared_with(
    method: str, paper: str, worst: float, average: float
) -> None:
    rows = printed_gains("cifar10")
    (row,) = (own for _, own in rows[(rows["method"] == method) & (rows["paper"] == paper)].iterrows())
    assert (row["worst"], row["average"]) == pytest.approx((worst, average), abs=0.005)


def test_gains_are_of_one_data_set_and_attack() -> None:
    assert set(printed_gains("cifar10")["attack"]) == {"autoattack"}
    assert set(printed_gains("cifar10", None)["attack"]) >= {"autoattack", "pgd"}
    assert printed_gains("mnist").empty
    assert "dafa" in printed_gains("stl10")["method"].tolist()
