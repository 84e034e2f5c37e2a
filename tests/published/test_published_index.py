"""The index: every table and figure has an id, a study of a known name, and a file that is there."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from classwise import published
from classwise.core.errors import UserError
from classwise.published.index import HOME

STUDIES = {
    "attacks",
    "background",
    "beta",
    "class-bias",
    "corruptions",
    "critical-class",
    "eta",
    "fairness",
    "features",
    "homing",
    "hypersphere",
    "intervals",
    "relations",
    "similarity",
    "temperature",
    "tsne",
    "universality",
    "weight",
    "weight-norm",
}


def numbered(paper: str, kind: str) -> set[int]:
    """The numbers of a paper's tables or figures; panels (4a, 4b) count for their figure."""
    places = [entry.place for entry in published.items() if entry.paper == paper]
    return {int(found[1]) for place in places if (found := re.fullmatch(rf"{kind}(\d+)[a-z]?", place))}


@pytest.mark.parametrize(
    ("paper", "figures", "tables"), [("tian2021", 6, 5), ("tian2020", 9, 6), ("li2023", 6, 5), ("benz2020", 2, 0)]
)
def test_no_table_or_figure_is_missing(paper: str, figures: int, tables: int) -> None:
    assert numbered(paper, "figure") == set(range(1, figures + 1))
    assert numbered(paper, "table") == set(range(1, tables + 1))


def test_every_item_says_what_it_is() -> None:
    for entry in published.items():
        assert entry.title, entry.id
        assert entry.shows.endswith("."), entry.id
        assert (entry.study is None) == ("nothing is measured" in entry.shows and entry.csv is None), entry.id
        assert (entry.csv is None) == (entry.columns == ""), entry.id
        assert published.item(entry.id) is entry


def test_every_study_reproduces_something_and_none_is_misspelt() -> None:
    assert {entry.study for entry in published.items()} - {None} == STUDIES


def test_files_and_index_belong_together() -> None:
    listed = {entry.csv for entry in published.items() if entry.csv}
    assert listed | {"statements.csv", "fair_methods.csv"} == {path.name for path in HOME.glob("*.csv")}
    assert published.names() == tuple(entry.id for entry in published.items() if entry.csv)
    assert [entry.id for entry in published.items() if "table" in entry.place] == list(published.names())


def test_papers_come_one_after_the_other() -> None:
    papers = [entry.paper for entry in published.items()]
    assert list(Counter(papers)) == ["tian2021", "tian2020", "li2023", "benz2020"]
    assert papers == sorted(papers, key=list(Counter(papers)).index)


def test_a_wrong_id_is_an_error_with_the_near_miss() -> None:
    with pytest.raises(UserError, match=r"unknown table or figure 'tian2021:tabel1'; did you mean 'tian2021:table1'\?"):
        published.item("tian2021:tabel1")
    with pytest.raises(UserError, match=r"did you mean 'tian2020:figure5[abef]'"):
        published.item("tian2020:figure5")
