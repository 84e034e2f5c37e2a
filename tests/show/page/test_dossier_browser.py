"""The dossier in a real browser: what it says, read aloud, on a telephone, and printed."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import classwise as cw
from browser import click, opened, requests, serious, texts
from page_runs import write_run

pytestmark = pytest.mark.browser

SECTIONS = ["identity", "domain", "threat", "criteria", "results", "statement", "adequacy", "drop", "limits"]
FACTS = """
[system]
name = "Pet <finder>"
purpose = "Finds pets."
[criticality]
cat = "high: they run"
[criteria]
require = ["worst>=0.5", "class[dog]>=0.4"]
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("dossier")
    write_run(root / "madry", images=False)
    write_run(root / "fog", images=False)
    (root / "fog" / "config.toml").write_text('[data]\nname = "corruption:of=pets,kind=fog"\n', encoding="utf-8")
    (root / "facts.toml").write_text(FACTS, encoding="utf-8")
    made = cw.dossier([root / "madry", root / "fog"], root / "out", root / "facts.toml", print_pdf=False)
    return (made.folder / "dossier.html").as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    return opened(browser, address)


def test_it_opens_without_errors_or_requests(page: Any, address: str) -> None:
    assert page.get_log("browser") == []
    assert [one for one in requests(page) if not one.startswith(("data:", address.partition("#")[0]))] == []


def test_the_first_screen_answers(page: Any) -> None:
    assert texts(page, "h1") == ["Audit dossier of Pet <finder>"]
    assert texts(page, ".gate") == ["failed 1 of 2 criteria failed"]
    assert texts(page, ".verdict")[0].startswith("cat is the worst class: 20.0% robust (95% CI")
    assert texts(page, ".hero .lead")[0].startswith("Under pgd-20, ")
    assert page.find_element("css selector", ".verdict").rect["height"] < 110  # two lines at most
    assert texts(page, ".figures dd b")[0] == "20.0%"
    assert page.find_element("css selector", ".badge").rect["y"] < 400
    shown = page.find_element("css selector", ".figures dd b [data-path]")
    assert float(shown.value_of_css_property("font-size").removesuffix("px")) > 25


def test_every_section_is_there_and_is_linked(page: Any) -> None:
    linked = page.execute_script("return [...document.querySelectorAll('nav a')].map((a) => a.hash.slice(1))")
    assert linked[: len(SECTIONS)] == SECTIONS
    assert all(page.execute_script("return !!document.getElementById(arguments[0])", name) for name in linked)


def test_tables_say_who_is_weakest(page: Any) -> None:
    rows = texts(page, "table[data-run=madry] tbody tr")
    assert rows[0].startswith("cat high: they run")
    assert texts(page, "table[data-run=madry] tr.weakest th") == ["cat high: they run"]
    assert texts(page, ".drop tbody tr:first-child td")[:3] == ["100.0%", "20.0%", "−80.0"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Any, theme: str) -> None:
    if theme == "dark":
        click(page, "#theme")
    assert serious(page) == []


@pytest.mark.parametrize("width", [390, 768])
def test_nothing_is_wider_than_the_screen(page: Any, width: int) -> None:
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") == width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_is_wider_than_printed_paper(page: Any) -> None:
    """A4 with the page's margins of 14 mm is 688 pixels wide."""
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    paper = {"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": True}  # without a scrollbar
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") == 688
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_it_prints_on_few_pages(page: Any) -> None:
    made = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert made.startswith(b"%PDF-")
    assert made.count(b"/Type /Page\n") + made.count(b"/Type /Page ") <= 14
