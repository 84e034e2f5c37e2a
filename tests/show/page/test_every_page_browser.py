"""Every kind of page in a real browser: accessible in light and dark, no text over another at three widths."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import classwise as cw
from board_runs import write_entry
from browser import click, opened, serious, texts
from classwise.show.page import board as board_page
from classwise.show.page import build as build_page
from page_runs import CONFIG, write_curve, write_run, write_training
from study_runs import write_study

pytestmark = pytest.mark.browser

KINDS = ("one", "comparison", "43", "1000", "training", "board", "study")
WIDTHS = (390, 820, 1280)

#: Pairs of texts of the main part whose boxes lie over each other by more than a third of a line.
OVERLAPS = """
const seen = (node) => {
  const element = node.nodeType === 3 ? node.parentElement : node;
  if (element.closest('.unseen, dialog, [hidden], script, style, canvas')) return null;
  if (!element.checkVisibility({ visibilityProperty: true })) return null;
  const range = document.createRange();
  range.selectNodeContents(node);
  let boxes = [...range.getClientRects()].map((r) => ({ l: r.left, t: r.top, r: r.right, b: r.bottom }));
  for (let up = element; up && up !== document.body; up = up.parentElement) {
    const style = getComputedStyle(up);
    if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
    const own = up.getBoundingClientRect();
    const [l, t] = [own.left, own.top];
    const [r, b] = [own.right, own.bottom];
    const cut = (x) => ({ l: Math.max(x.l, l), t: Math.max(x.t, t), r: Math.min(x.r, r), b: Math.min(x.b, b) });
    boxes = boxes.map(cut);
  }
  return boxes.filter((x) => x.r - x.l > 1 && x.b - x.t > 1);
};
const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const all = [];
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  if (!node.textContent.trim()) continue;
  for (const box of seen(node) || []) all.push({ ...box, node, text: node.textContent.trim().slice(0, 40) });
}
all.sort((a, b) => a.t - b.t);
const found = [];
for (let i = 0; i < all.length; i++) {
  for (let j = i + 1; j < all.length && all[j].t < all[i].b; j++) {
    const [a, b] = [all[i], all[j]];
    if (a.node === b.node) continue;
    const wide = Math.min(a.r, b.r) - Math.max(a.l, b.l);
    const high = Math.min(a.b, b.b) - Math.max(a.t, b.t);
    const lies = wide > 2 && high > 0.34 * Math.min(a.b - a.t, b.b - b.t);
    if (lies) found.push(`${a.text} | ${b.text} (${wide.toFixed(0)}x${high.toFixed(0)})`);
  }
}
return [all.length, found.slice(0, 8)];
"""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("kinds")
    draw = np.random.default_rng(0)
    write_curve(root / "curve", [(30, 40, 40, 40), (20, 35, 40, 38), (8, 20, 36, 30)])
    write_run(root / "madry")
    signs = [f"a road sign with a long name, {k:02d}" for k in range(43)]
    groups = {f"superclass number {k} of the signs": tuple(signs[k::6]) for k in range(6)}
    write_run(root / "signs", draw.integers(3, 39, 43).tolist(), signs, superclasses=groups)
    many = [f"class number {k}" for k in range(1000)]
    write_run(root / "thousand", draw.integers(3, 39, 1000).tolist(), many, images=False)
    write_entry(root / "board" / "wat", [20, 22, 20, 18, 20, 21, 22, 22, 22, 22])
    write_entry(root / "board" / "trades", [25, 30, 15, 10, 12, 16, 25, 27, 29, 28], model="wideresnet-34-10")
    gated: dict[str, Any] = {"requirements": ["worst>=0.3", "clean.worst>=0.5"], "note": "For the review of May."}
    made = {
        "one": build_page([root / "curve"], root / "one.html", **gated),
        "comparison": build_page([root / "curve", root / "madry"], root / "comparison.html", **gated),
        "43": build_page([root / "signs"], root / "43.html"),
        "1000": build_page([root / "thousand"], root / "1000.html"),
        "training": build_page([write_training(root / "training", config=CONFIG)], root / "training.html"),
        "board": board_page.build(cw.leaderboard([root / "board"]), root / "out", reports=False),
        "study": build_page([write_study(root / "study")], root / "study.html", note="For the review of May."),
    }
    return {name: Path(path).as_uri() for name, path in made.items()}


def sized(page: Any, width: int) -> Any:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_lies_over_another(browser: Any, addresses: dict[str, str], kind: str) -> None:
    found = {}
    try:
        for width in WIDTHS:
            page = opened(sized(browser, width), addresses[kind])
            texts_seen, found[width] = page.execute_script(OVERLAPS)
            assert texts_seen > 20
            assert page.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert found == {width: [] for width in WIDTHS}


def test_an_overlap_would_be_found(browser: Any, addresses: dict[str, str]) -> None:
    page = opened(browser, addresses["training"])
    page.execute_script("document.querySelector('.verdict').style.marginBottom = '-1.5rem'")
    assert page.execute_script(OVERLAPS)[1]


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_serious(browser: Any, addresses: dict[str, str], kind: str) -> None:
    page = opened(browser, addresses[kind])
    assert serious(page) == []
    click(page, "#theme")
    assert serious(page) == []
    assert page.get_log("browser") == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_screen_answers(browser: Any, addresses: dict[str, str], kind: str) -> None:
    """Title, verdict with its number, and the figures begin within the first screen of a laptop."""
    page = opened(browser, addresses[kind])
    verdict = page.find_element("css selector", ".hero .verdict")
    assert verdict.rect["y"] + verdict.rect["height"] < 600
    assert any(sign in verdict.text for sign in ("%", "first", "claims decided"))
    assert texts(page, "#glossary dt")


class TestMap:
    """The confusion of more classes than a grid can show."""

    @pytest.fixture
    def page(self, browser: Any, addresses: dict[str, str]) -> Any:
        return opened(browser, addresses["43"])

    def labels(self, page: Any, axis: str = "rows") -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = page.execute_script(
            "return JSON.parse(document.querySelector('.map').dataset.labels)[arguments[0]]", axis
        )
        return found

    def key(self, page: Any, *keys: str) -> None:
        area = page.find_element("css selector", ".map")
        for one in keys:
            area.send_keys(one)

    def test_names_on_both_axes_never_over_each_other(self, browser: Any, addresses: dict[str, str]) -> None:
        """Of 43 classes every name; of 1,000 those of groups, or of classes where there is room."""
        page = opened(browser, addresses["43"])
        assert len(self.labels(page)) == len(self.labels(page, "columns")) == 43
        page = opened(browser, addresses["1000"])
        for axis in ("rows", "columns"):
            places = [at for _, at in self.labels(page, axis)]
            assert 10 < len(places) < 80
            assert min(b - a for a, b in itertools.pairwise(places)) >= 12

    def test_zoomed_by_buttons_and_keys_and_back(self, page: Any) -> None:
        whole = self.labels(page)
        click(page, ".zoom button:nth-child(1)")
        closer = self.labels(page)
        assert 20 <= len(closer) <= 24
        self.key(page, "+", "+", "+", "+")
        assert len(self.labels(page)) <= 10
        self.key(page, "-")
        assert 14 <= len(self.labels(page)) <= 20
        self.key(page, "\ue011")  # home
        assert self.labels(page) == whole

    def test_walked_through_by_keyboard_and_opened(self, page: Any) -> None:
        self.key(page, "\ue015")  # the first arrow goes to the most frequent error
        first = texts(page, "#errors-list .pair")[0]
        assert texts(page, "#readout")[0].startswith(first)
        assert texts(page, "#announcer") == texts(page, "#readout")
        self.key(page, "\ue015")
        assert not texts(page, "#readout")[0].startswith(first)
        self.key(page, "\n")
        pair = texts(page, "#cell-title")[0]
        assert texts(page, "#readout")[0].startswith(pair)
        click(page, "#cell-close")

    def test_dragged_when_zoomed(self, page: Any) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        click(page, ".zoom button:nth-child(1)")
        before = self.labels(page)
        canvas = page.find_element("css selector", ".map canvas")
        page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
        ActionChains(page).move_to_element(canvas).click_and_hold().move_by_offset(-60, -90).release().perform()
        after = self.labels(page)
        assert [name for name, _ in after] != [name for name, _ in before]
        assert not page.find_element("id", "cell").is_displayed()  # a drag is no click

    def address(self, page: Any) -> str:
        """The address once the map has come to rest."""
        page.execute_async_script("setTimeout(arguments[0], 300)")
        found: str = page.current_url
        return found

    def test_what_is_shown_is_in_the_address(self, page: Any) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        whole, start = self.labels(page), page.current_url
        click(page, ".zoom button:nth-child(1)")
        assert self.address(page) == f"{start}#map=10.75%2C10.75%2C21.5"
        canvas = page.find_element("css selector", ".map canvas")
        page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
        ActionChains(page).move_to_element(canvas).click_and_hold().move_by_offset(-60, -90).release().perform()
        self.key(page, "+")
        shown = {axis: self.labels(page, axis) for axis in ("rows", "columns")}
        again = opened(page, self.address(page))
        for axis, labels in shown.items():
            found = self.labels(again, axis)
            assert [name for name, _ in found] == [name for name, _ in labels]
            assert [at for _, at in found] == pytest.approx([at for _, at in labels], abs=1)
        assert self.address(again) == page.current_url
        self.key(again, "\ue011")  # home
        assert self.address(again) == start
        assert self.labels(again) == whole

    def test_with_the_rest_of_the_view_in_the_address(self, page: Any) -> None:
        page = opened(page, f"{page.current_url}#attack=clean&map=2,30.5,10")
        names = [name for name, _ in self.labels(page, "columns")]
        assert len(names) == 10
        page.find_element("css selector", "#attack option:last-child").click()  # the window stays
        assert [name for name, _ in self.labels(page, "columns")] == names
        assert self.address(page).endswith("#map=2%2C30.5%2C10")
        page.execute_script("location.hash = '#sort=n&order=down'")  # an address without it shows everything
        assert self.address(page).endswith("#sort=n&order=down")
        assert len(self.labels(page)) == 43

    def test_a_window_outside_the_map_is_ignored(self, page: Any) -> None:
        start = page.current_url
        for nonsense in ("", "1,2", "a,b,c", "1,2,3,4", "-1,0,20", "0,0,1", "0,0,44", "30,0,20", "0,40,20", "NaN,0,20"):
            page = opened(page, f"{start}#sort=n&order=down&map={nonsense}")
            assert len(self.labels(page)) == len(self.labels(page, "columns")) == 43, nonsense
            assert page.get_log("browser") == []

    def test_pointed_at(self, page: Any) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        self.key(page, "\ue015")
        said = texts(page, "#readout")[0]
        canvas = page.find_element("css selector", ".map canvas")
        page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
        names = dict(self.labels(page)), dict(self.labels(page, "columns"))
        true, predicted = said.partition(":")[0].split(" → ")
        size = canvas.size
        plot = max(names[0].values()) + min(names[0].values())
        left, top = size["width"] - plot, size["height"] - plot
        x, y = left + names[1][predicted] - size["width"] / 2, top + names[0][true] - size["height"] / 2
        ActionChains(page).move_to_element_with_offset(canvas, round(x), round(y)).perform()
        assert texts(page, "#tip") == [said]

    def test_on_paper_the_pairs_are_listed(self, page: Any) -> None:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        listed = page.find_element("id", "errors-print")
        assert listed.is_displayed()
        assert len(listed.find_elements("css selector", "li")) == 60
        assert not page.find_element("css selector", ".zoom").is_displayed()
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        assert not listed.is_displayed()
