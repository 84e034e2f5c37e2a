"""The page of a study in a real browser: tables sorted and kept in the address, and what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browser import click, downloaded, opened, requests, texts
from classwise.show.page import build
from study_runs import write_study

pytestmark = pytest.mark.browser

TABLE = "#table-costs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_study(tmp_path_factory.mktemp("studies") / "worst")
    build([made], made / "study.html")
    return made


@pytest.fixture
def page(browser: Any, folder: Path) -> Any:
    return opened(browser, (folder / "study.html").as_uri())


def test_it_opens_without_errors_or_requests(page: Any, folder: Path) -> None:
    assert page.get_log("browser") == []
    own = (folder / "study.html").as_uri()
    assert [one for one in requests(page) if not one.startswith(("data:", own))] == []


def test_a_header_sorts_both_ways_and_the_address_keeps_it(page: Any, folder: Path) -> None:
    assert texts(page, f"{TABLE} tbody th")[0] == "trades-tuned"
    click(page, f"{TABLE} thead th:nth-child(3) button")
    assert texts(page, f"{TABLE} tbody td:last-child") == ["4.00", "30.2", "31.0", "33.5"]
    click(page, f"{TABLE} thead th:nth-child(3) button")
    assert texts(page, f"{TABLE} tbody th")[0] == "wat-tuned"
    assert texts(page, "#announcer") == ["Sorted by minutes each, descending."]
    address = page.current_url
    assert address.endswith("#table-costs=2%2Cdown")
    again = opened(page, address)
    assert texts(again, f"{TABLE} tbody th")[0] == "wat-tuned"
    sorts = again.execute_script(
        "return [...document.querySelectorAll('#table-costs thead th')].map((e) => e.getAttribute('aria-sort'))"
    )
    assert sorts == ["none", "none", "descending"]
    click(again, f"{TABLE} thead th:nth-child(1) button")
    assert texts(again, f"{TABLE} tbody th") == ["csl-tuned", "trades-tuned", "trades-tuned-repaired", "wat-tuned"]


def test_what_is_missing_comes_last_either_way(page: Any) -> None:
    """The control has no difference from itself."""
    table = "#table-trades-tuned_audit"
    head = texts(page, f"{table} thead th")
    place = head.index("difference") + 1
    for _ in range(2):
        click(page, f"{table} thead th:nth-child({place}) button")
        assert texts(page, f"{table} tbody td:nth-child({place})")[-4:] == [""] * 4


def test_tables_and_figures_are_saved(page: Any, folder: Path, tmp_path: Path) -> None:
    table = downloaded(page, tmp_path / "csv", "[data-save-table=table-trades-tuned_audit]")
    assert table.name == "trades-tuned_audit.csv"
    assert table.read_text(encoding="utf-8") == (folder / "tables" / table.name).read_text(encoding="utf-8")
    chart = downloaded(page, tmp_path / "svg", "[data-save-chart=forest_trades-tuned_audit]")
    drawn = ElementTree.fromstring(chart.read_text(encoding="utf-8"))
    assert "wat-tuned" in "".join(drawn.itertext())


def test_a_forest_plot_is_as_wide_as_the_page(page: Any) -> None:
    chart, main = (page.find_element("css selector", one).rect["width"] for one in (".chart svg", "#figures"))
    assert chart == pytest.approx(main, abs=2)


def test_nothing_is_wider_than_printed_paper(page: Any) -> None:
    """Tables of 16 and 19 columns too; A4 with the page's margins is 688 pixels wide."""
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    paper = {"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") == 688
        assert page.find_element("css selector", "#table-trades-tuned_audit_classes").rect["width"] <= 688
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
