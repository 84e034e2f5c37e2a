"""The leaderboard in a real browser: sorted, filtered, kept in the address, read aloud and on a telephone."""

from __future__ import annotations

from typing import Any

import pytest

import classwise as cw
from board_runs import CIFAR10, write_entry, write_trained
from browser import click, opened, requests, serious, texts, write_into
from classwise.show.page import board as board_page

pytestmark = pytest.mark.browser

SHIPS = ("ship & sail", "<b>boat</b>", "canoe")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three models of CIFAR-10 and one of other data; wat is ahead in the worst class, madry in the average."""
    root = tmp_path_factory.mktemp("board")
    checkpoint = write_trained(root / "trained", "wat", 0)
    write_entry(root / "runs" / "wat", [20, 22, 20, 18, 20, 21, 22, 22, 22, 22], model=str(checkpoint))
    write_entry(root / "runs" / "trades", [25, 30, 15, 10, 12, 16, 25, 27, 29, 28], model="wideresnet-34-10")
    write_entry(root / "runs" / "madry", [39, 39, 20, 2, 12, 16, 39, 39, 39, 39])
    write_entry(root / "runs" / "boats", [30, 20, 39], SHIPS, data="boats")
    return board_page.build(cw.leaderboard([root / "runs"]), root / "board", reports=False).as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    return opened(browser, address)


def models(page: Any) -> list[str]:
    """The models that are shown, by division from top to bottom, without what is printed."""
    found: list[str] = page.execute_script(
        "const rows = '.division:not([hidden]) .models tbody:not(.printed) tr:not([hidden]) th';"
        "return [...document.querySelectorAll(rows)].map((e) => e.firstChild.textContent)"
    )
    return found


def fragment(page: Any) -> str:
    found: str = page.execute_script("return location.hash")
    return found


def test_no_error_and_no_request(page: Any) -> None:
    assert page.execute_script("return document.documentElement.classList.contains('ready')")
    assert page.get_log("browser") == []
    assert all(url.startswith(("file:", "data:")) for url in requests(page))


def test_sorted_by_click_and_keyboard(page: Any) -> None:
    assert models(page) == ["boats", "wat", "trades", "madry"]  # within each division by the worst class
    click(page, "#division-2 th[data-key=average] button")
    assert models(page) == ["boats", "madry", "trades", "wat"]
    assert fragment(page) == "#sort=average"
    page.find_element("css selector", "#division-2 th[data-key=average] button").send_keys("\n")
    assert models(page) == ["boats", "wat", "trades", "madry"]
    assert texts(page, "#announcer") == ["Sorted by average, ascending."]
    orders = "return [...document.querySelectorAll('th[data-key=average]')].map((e) => e.getAttribute('aria-sort'))"
    assert page.execute_script(orders) == ["ascending", "ascending"]
    page.find_element("css selector", "#sort option[value=name]").click()
    assert models(page) == ["boats", "madry", "trades", "wat"]
    page.find_element("css selector", "#sort option[value=training_seconds]").click()
    assert models(page)[1] == "wat"  # the others' cost is not known


def test_printed_rows_come_last_and_can_be_hidden(page: Any) -> None:
    names = texts(page, "#division-2 tbody.printed tr[data-place] th")
    assert len(names) > 19
    assert all("printed" in name for name in names)
    assert texts(page, "#division-2 tbody.printed td:first-child") == ["–"] * len(names)  # no rank
    click(page, "#printed")
    assert not page.find_element("css selector", "#division-2 tbody.printed").is_displayed()
    assert fragment(page) == "#printed=no"


def test_filtered_by_data_network_and_name(page: Any) -> None:
    page.find_element("css selector", "#by-data option:nth-child(3)").click()
    assert models(page) == ["wat", "trades", "madry"]
    assert texts(page, "#count") == ["3 of 4 models"]
    page.execute_script("document.querySelector('#by-network').value = 'wideresnet-34-10'")
    page.execute_script("document.querySelector('#by-network').dispatchEvent(new Event('change'))")
    assert models(page) == ["trades"]
    write_into(page, "#find", "nothing of that name")
    assert models(page) == []
    assert page.find_element("id", "none").is_displayed()
    assert texts(page, "#announcer") == ["0 of 4 models shown."]


def test_the_address_is_a_view(browser: Any, address: str) -> None:
    page = opened(browser, address + "#sort=average&order=up&data=cifar10&find=a&printed=no")
    assert models(page) == ["wat", "trades", "madry"]
    assert page.find_element("id", "find").get_attribute("value") == "a"
    assert page.find_element("id", "sort").get_attribute("value") == "average"
    page.execute_script("location.hash = 'sort=name&data=boats'")
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert models(page) == ["boats"]
    assert opened(browser, address + "#sort=nonsense&data=nowhere").get_log("browser") == []
    assert len(models(page)) == 4


def test_a_strip_says_and_shows_its_classes(page: Any) -> None:
    strip = page.find_element("css selector", "#division-2 tbody tr:nth-child(3) .strip")
    label = strip.get_attribute("aria-label")
    assert label.startswith("Accuracy by class: cat 5.0%, deer 30.0%")
    assert all(name in label for name in CIFAR10)
    assert len(strip.find_elements("css selector", "rect.lowest")) == 1
    page.execute_script(
        "const box = arguments[0].getBoundingClientRect();"
        "arguments[0].dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + 1, clientY: box.top + 1}))",
        strip,
    )
    assert texts(page, "#tip") == ["cat\n5.0%"]


def test_names_with_markup_are_only_names(page: Any) -> None:
    label = page.find_element("css selector", "#division-1 .strip").get_attribute("aria-label")
    assert "<b>boat</b> 50.0%" in label


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Any, theme: str) -> None:
    if theme == "dark":
        click(page, "#theme")
    assert serious(page) == []


def test_nothing_is_wider_than_a_telephone(page: Any) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") == 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
