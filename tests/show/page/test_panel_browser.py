"""The panel of a class, the state in the address and the downloads, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browser import click, downloaded, opened, press, serious, texts
from classwise.core.csv_files import read_csv
from classwise.results.audit_result import Audit
from classwise.show.page import build as build_page
from page_runs import SCRIPT, write_curve, write_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("panel")
    write_curve(root / "curve", [(30, 40, 40, 40), (20, 35, 40, 38), (8, 20, 36, 30)])
    write_run(root / "madry")
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> str:
    return build_page([root / "curve", root / "madry"], root / "report.html").as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    return opened(browser, address)


def fragment(page: Any) -> str:
    found: str = page.execute_script("return decodeURIComponent(location.hash)")
    return found


def test_a_click_on_a_class_shows_its_numbers_in_every_run(page: Any) -> None:
    click(page, "#class-body tr:first-child th a")
    assert texts(page, "#panel-title") == ["cat"]
    assert texts(page, "#panel-text")[0].startswith("20.0% robust (95% CI")
    rows = page.execute_script(
        "return [...document.querySelectorAll('#panel .plain tbody tr')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    assert [(row[0], row[1], row[2], row[3]) for row in rows] == [
        ("curve", "the worst case", "95.0%", "20.0%"),
        ("madry", "pgd-20", "100.0%", "20.0%"),
    ]
    assert fragment(page) == "#class=cat"


def test_its_curve_says_what_the_audit_measured(page: Any, root: Path) -> None:
    click(page, "#class-body tr:first-child th a")
    label = page.find_element("css selector", "#panel .chart").get_attribute("aria-label")
    assert "0: 95.0%, 2/255: 75.0%, 4/255: 50.0%, 6/255: 20.0%" in label
    table = Audit.load(root / "curve").curve()
    assert (table[(table["class"] == "cat") & (table["eps"] > 0)]["accuracy"].tolist()) == [0.75, 0.5, 0.2]
    points = page.find_elements("css selector", "#panel .point")
    assert len(points) == 4
    page.execute_script(
        "const box = arguments[0].getBoundingClientRect(); arguments[0].dispatchEvent(new MouseEvent('mousemove',"
        "{bubbles: true, clientX: box.left + 2, clientY: box.top + 2}))",
        points[1],
    )
    assert texts(page, "#tip") == ["class: cat\nrun: curve\nε: 2/255\nrobust: 75.0%"]
    assert page.find_element("id", "tip").is_displayed()
    lines = page.execute_script(
        "return ['.reach', '.path', '.everyone'].map((kind) => [...document.querySelectorAll(`#panel ${kind}`)]"
        ".map((mark) => mark.getAttribute('aria-label')))"
    )
    assert lines[0][1] == "class: cat; run: curve; ε: 2/255; robust: 75.0%"
    assert lines[1] == ["class: cat; run: curve; ε: from 0 to 6/255; robust: from 95.0% to 20.0%"]
    assert lines[2][0].startswith("class: all images; ε: from 0 to 6/255; robust: from ")


def test_whom_it_is_confused_with_and_a_cell_from_there(page: Any) -> None:
    click(page, "#class-body tr:first-child th a")
    named = texts(page, "#panel .two .pair")
    assert named[:2] == ["dog", SCRIPT]
    page.find_element("css selector", "#panel .errors button").click()
    assert texts(page, "#cell-title") == ["cat → dog"]
    assert fragment(page) == "#class=cat&cell=cat,dog"
    press(page, "\ue00c")  # escape closes the cell, then the panel
    assert page.find_element("id", "panel").is_displayed()
    press(page, "\ue00c")
    assert fragment(page) == ""


def test_its_images(page: Any) -> None:
    """The curve kept the clean errors of cat; madry the images that its attack broke, and those that survive."""
    click(page, "#class-body tr:first-child th a")
    assert texts(page, "#panel .images + h4, #panel .part h4")[-1] == "Misclassified without any attack"
    assert texts(page, "#panel .images.single span") == ["dog 45%", "dog 44%"]
    click(page, "#panel-close")
    page.execute_script("document.querySelectorAll('input[name=run]')[1].click()")
    click(page, "#class-body tr:first-child th a")
    assert [text for text in texts(page, "#panel .part h4") if "images" in text] == [
        "Most fragile images",
        "Most robust images",
    ]
    assert "difference ×16" in texts(page, "#panel .triple span")
    sizes = page.execute_script(
        "const images = [...document.querySelectorAll('#panel img')];"
        "return Promise.all(images.map((image) => image.decode().then(() => image.naturalWidth)))"
    )
    assert len(sizes) == 4 * 3 + 4
    assert set(sizes) == {4}


def test_from_class_to_class_in_the_order_of_the_table(page: Any) -> None:
    order = texts(page, "#class-body th a")
    click(page, "#class-body tr:first-child th a")
    seen = []
    for _ in order:
        seen += texts(page, "#panel-title")
        click(page, "#panel-after")
    assert seen == order
    click(page, "#panel-before")
    assert texts(page, "#panel-title") == order[-1:]
    assert texts(page, "#announcer") == [f"Now showing {order[-1]}."]


def test_the_address_is_a_view(browser: Any, address: str) -> None:
    page = opened(browser, address)
    page.execute_script("document.querySelectorAll('input[name=run]')[1].click()")
    page.find_element("css selector", "#attack option").click()
    click(page, "th[data-key=n] button")
    page.find_element("id", "search").send_keys("o")
    assert fragment(page) == "#run=madry&attack=clean&sort=n&order=down&find=o"
    shown = [texts(page, "#class-body th a"), texts(page, "#class-body td.strong")]
    again = opened(browser, page.current_url)
    assert [texts(again, "#class-body th a"), texts(again, "#class-body td.strong")] == shown
    assert again.execute_script("return document.querySelector('input[name=run]:checked').value") == "1"
    assert again.find_element("id", "attack").get_attribute("value") == "0"
    assert again.find_element("id", "search").get_attribute("value") == "o"


def test_a_cell_in_the_address_and_nonsense_there(browser: Any, address: str) -> None:
    page = opened(browser, address + "#run=madry&cell=cat,dog")
    assert texts(page, "#cell-title") == ["cat → dog"]
    click(page, "#cell-close")
    page = opened(browser, address + "#run=nobody&attack=x&sort=bar&cell=a,b&class=zebra&most=-3")
    assert page.get_log("browser") == []
    assert not page.find_element("id", "cell").is_displayed()
    assert texts(page, "#class-body th a")[0] == "cat"
    page.execute_script("location.hash = '#class=dog'")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    assert texts(page, "#panel-title") == ["dog"]


def test_downloads(page: Any, root: Path, tmp_path: Path) -> None:
    table = read_csv(downloaded(page, tmp_path / "csv", "#save-csv"))
    audit = Audit.load(root / "curve")
    expected = audit.by_class()
    assert table["class"].tolist() == expected["class"].tolist()
    assert table["accuracy"].tolist() == expected["accuracy"].tolist()
    assert table["confused_with"].tolist() == expected["confused_with"].tolist()
    whole = json.loads(downloaded(page, tmp_path / "json", "#save-json").read_text(encoding="utf-8"))
    assert [view["attack"] for view in whole["attacks"]][-1] == whole["headline"] == "worst_case"
    assert whole["attacks"][-1]["verdict"] == audit.verdict().sentence
    errors = sum(error["n"] for error in whole["attacks"][-1]["errors"])
    assert errors == int((~audit.rows().correct).sum())
    chart = downloaded(page, tmp_path / "svg", "[data-save-chart=forest]")
    drawn = ElementTree.fromstring(chart.read_text(encoding="utf-8"))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(drawn.attrib["width"]) > 100
    assert SCRIPT in "".join(drawn.itertext())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_panel(page: Any, theme: str) -> None:
    if theme == "dark":
        click(page, "#theme")
    click(page, "#class-body tr:first-child th a")
    assert serious(page) == []
