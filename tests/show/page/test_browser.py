"""The page in a real browser, opened from disk with the network off: what one clicks, types and reads aloud.

Needs Chromium with its driver, selenium, and axe-core-python (axe-core itself is under the MPL 2.0).
"""

from __future__ import annotations

from typing import Any

import pytest

from browser import click, opened, press, requests, serious, texts, write_into
from classwise.show.page import build as build_page
from page_runs import NAMES, SCRIPT, write_run, write_training

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "madry")
    write_run(root / "wat", right=(20, 18, 30, 31), images=False)
    folders = [root / "madry", root / "wat", write_training(root / "training")]
    return build_page(folders, root / "report.html").as_uri()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("large")
    names = [f"thing {number:03d}" for number in range(1000)]
    write_run(root, right=[number % 41 for number in range(1000)], names=names, images=False)
    return build_page([root], root / "report.html").as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    return opened(browser, address)


def classes(page: Any) -> list[str]:
    return [name.removesuffix(" worst") for name in texts(page, "#class-body th")]


def test_no_error_and_no_request(page: Any) -> None:
    assert page.execute_script("return document.documentElement.classList.contains('ready')")
    assert page.get_log("browser") == []
    asked = requests(page)
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)


def test_the_table_sorts_by_click_and_by_keyboard(page: Any) -> None:
    assert classes(page) == ["cat", "dog", SCRIPT, "ship & sail"]  # the weakest first
    assert page.find_element("css selector", "th[aria-sort=ascending]").text.startswith("robust")
    click(page, "th[data-key=accuracy] button")
    assert classes(page) == ["ship & sail", SCRIPT, "dog", "cat"]
    page.find_element("css selector", "th[data-key=name] button").send_keys("\n")
    assert classes(page) == [SCRIPT, "cat", "dog", "ship & sail"]
    assert page.execute_script("return document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"
    assert texts(page, "#announcer") == ["Sorted by class, ascending."]


def test_another_run_and_another_attack(page: Any) -> None:
    before = texts(page, "#class-body td.strong")
    page.find_element("css selector", "input[name=run]").send_keys("\ue014")  # arrow right
    assert texts(page, "#announcer") == ["Now showing wat."]
    assert texts(page, "#class-body td.strong") != before
    assert [e.is_displayed() for e in page.find_elements("css selector", "[data-run] .verdict")] == [False, True]
    page.find_element("css selector", "#attack option").click()
    assert texts(page, "#class-body td.strong") == ["100.0%"] * len(NAMES)


def test_the_search_finds_a_class(page: Any) -> None:
    write_into(page, "#search", "SHIP")
    assert classes(page) == ["ship & sail"]
    assert texts(page, "#announcer") == ["1 of 4 classes shown."]


def test_a_cell_opens_its_images_and_gives_the_focus_back(page: Any) -> None:
    cell = page.find_element("css selector", ".grid button[data-i='0'][data-j='1']")
    assert cell.get_attribute("aria-label") == "cat → dog: 77.5% (31 of 40 images)"
    page.execute_script("arguments[0].focus()", cell)
    press(page, "\n")
    dialog = page.find_element("id", "cell")
    assert dialog.get_attribute("open") is not None
    assert texts(page, "#cell-title") == ["cat → dog"]
    sizes = page.execute_script(
        "const images = [...document.querySelectorAll('#cell img')];"
        "return Promise.all(images.map((image) => image.decode().then(() => image.naturalWidth)))"
    )
    assert len(sizes) >= 3
    assert set(sizes) == {4}
    assert "difference ×16" in texts(page, "#cell .triple span")
    press(page, "\ue00c")  # escape
    assert dialog.get_attribute("open") is None
    assert page.execute_script("return document.activeElement === arguments[0]", cell)


def test_arrow_keys_walk_from_error_to_error(page: Any) -> None:
    """cat is misclassified as dog and as the last class; its other cells are empty."""
    page.execute_script('document.querySelector(\'.grid button[data-i="0"][data-j="1"]\').focus()')
    reached = []
    for key in ("\ue014", "\ue012", "\ue012"):  # arrow right, left, left
        press(page, key)
        reached.append(page.execute_script("const at = document.activeElement.dataset; return [at.i, at.j].join()"))
    assert set(reached) == {"0,1", "0,3"}
    press(page, "\ue015")  # arrow down
    assert page.execute_script("return document.activeElement.dataset.i") != "0"
    assert len(page.find_elements("css selector", ".grid button[tabindex='0']")) == 1


def test_without_images_the_panel_says_how_to_get_them(page: Any) -> None:
    page.execute_script("document.querySelectorAll('input[name=run]')[1].click()")
    click(page, "#errors-list button")
    assert "--save-adversarial" in texts(page, "#cell-note")[0]
    click(page, "#cell-close")


@pytest.mark.parametrize("fragment", ["#class=ship-sail", "#class-ship-sail"])
def test_a_link_to_a_class_opens_its_panel(browser: Any, address: str, fragment: str) -> None:
    page = opened(browser, address + fragment)
    assert texts(page, "tr.chosen th") == ["ship & sail"]
    assert page.find_element("id", "panel").is_displayed()
    assert texts(page, "#panel-title") == ["ship & sail"]
    press(page, "\ue00c")  # escape
    assert not page.find_element("id", "panel").is_displayed()
    assert page.execute_script("return location.hash") == ""


def test_dark_by_the_switch_and_by_the_system(page: Any) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert page.execute_script(paper) == "rgb(255, 255, 255)"
    click(page, "#theme")
    assert page.execute_script(paper) == "rgb(18, 22, 27)"
    assert page.find_element("id", "theme").get_attribute("aria-pressed") == "true"
    click(page, "#theme")
    assert page.execute_script(paper) == "rgb(255, 255, 255)"
    page.execute_script("localStorage.clear(); delete document.documentElement.dataset.theme")
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert page.execute_script(paper) == "rgb(18, 22, 27)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_name_with_markup_is_only_a_name(page: Any) -> None:
    assert SCRIPT in classes(page)
    assert SCRIPT in texts(page, ".grid tbody th")
    assert page.execute_script("return document.scripts.length") == 2
    click(page, f"#errors-list li:nth-child({len(NAMES)}) button")
    assert SCRIPT in texts(page, "#cell-title")[0]  # an alert would have raised
    click(page, "#cell-close")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Any, theme: str) -> None:
    if theme == "dark":
        click(page, "#theme")
    click(page, "#errors-list button")
    assert serious(page) == []
    click(page, "#cell-close")
    assert serious(page) == []


def test_many_classes_stay_usable(browser: Any, large: str) -> None:
    page = opened(browser, large)
    assert texts(page, "#class-count") == ["40 of 1,000 classes"]
    assert classes(page)[:2] == ["thing 000", "thing 041"]  # the weakest first
    assert page.execute_script("return location.hash") == ""
    page.find_element("css selector", "#ends option[value=both]").click()
    write_into(page, "#most", "5")
    assert len(classes(page)) == 10
    write_into(page, "#search", "thing 977")
    assert classes(page) == ["thing 977"]
    assert page.find_elements("css selector", "#confusion-room canvas")
    write_into(page, "#errors-of", "thing 041")
    expected = ["thing 041 → thing 042", "thing 041 → thing 040", "thing 042 → thing 041"]
    assert texts(page, "#errors-list .pair") == expected
    assert page.get_log("browser") == []


def test_nothing_is_wider_than_a_telephone(page: Any) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") == 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
