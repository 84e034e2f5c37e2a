"""What notebooks show: every result as HTML, escaped and with bars, and charts that need no network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.support.ui import WebDriverWait

import browser
import classwise as cw
from classwise.results.audit_result import Audit
from classwise.results.compare import compare
from classwise.results.compare_groups import compare_groups
from classwise.results.leaderboard import Leaderboard
from classwise.results.search_result import SearchResult
from classwise.results.training_result import TrainingResult
from classwise.show import figures, notebook
from classwise.show.figures import offline
from classwise.stats import confidence_sequences

Make = Callable[..., Audit]
NAMES = ("cat", "<script>alert(1)</script>", "ship & boat")


class Page(HTMLParser):
    """The tables of a page as text, and the tags it has; an error where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    return audit_of({"clean": [90, 60, 80], "pgd-20": [50, 7, 64]}, (100, 70, 80), NAMES)


def test_an_audit_has_its_clean_accuracy_its_intervals_and_bars(audit: Audit) -> None:
    page = Page(audit._repr_html_())
    head, worst, *_ = page.rows
    assert head == ["class", "images", "clean", "robust", "95% CI", "", "misclassified as"]
    assert worst[:5] == ["<script>alert(1)</script>", "70", "85.7%", "10.0%", "4.9–19.2%"]
    assert [row[0] for row in page.rows[1:]] == [NAMES[1], NAMES[0], NAMES[2]]
    assert "script" not in page.tags
    text = audit._repr_html_()
    assert text.count("linear-gradient(to right") == 3
    assert '<div title="10.0% [4.9–19.2%]"' in text
    assert "4.9%" in text.partition("linear-gradient(to right")[2]  # the bar is filled up to the lower end


def test_a_class_without_images_has_no_bar(audit_of: Make) -> None:
    text = audit_of({"pgd-20": [0, 3]}, (0, 5), ("cat", "dog"))._repr_html_()
    assert text.count("linear-gradient(to right") == 1


def test_of_many_classes_both_ends_are_shown(audit_of: Make) -> None:
    page = Page(audit_of({"pgd-20": [k % 50 for k in range(1000)]}, [50] * 1000)._repr_html_())
    assert len(page.rows) == 1 + 40 + 1
    assert ["… 960 more"] in page.rows


def results(audit: Audit, audit_of: Make) -> dict[str, Any]:
    """A result of each kind that this side of torch makes."""
    other = audit_of({"clean": [80, 50, 70], "pgd-20": [30, 20, 60]}, (100, 70, 80), NAMES)
    right, whole = np.array([60, 50, 40]), np.array([70, 70, 70])
    state = confidence_sequences.race(right, whole, lambda seen: (seen * 0.5).astype(int), 0.95, 0.0)
    of_classes = {f"{what}:{name}": 0.2 for name in NAMES for what in ("clean", "robust")}
    epoch = {"epoch": 1, "robust": 0.4, "clean": 0.8, "seconds": 1.0, "best_epoch": 1}
    history = pd.DataFrame([epoch | of_classes])
    return {
        "comparison": compare({"a": audit, "b": other}),
        "groups": compare_groups({"a": {"1": audit, "2": other}, "b": {"1": other, "2": audit}}),
        "search": SearchResult(state=state, records=audit.records, confidence=0.95, tolerance=0.0),
        "training": TrainingResult(history=history, config={"data": {"validation": 50}}),
    }


def test_every_result_is_escaped_and_closes_its_tags(audit: Audit, audit_of: Make) -> None:
    for name, result in results(audit, audit_of).items():
        page = Page(result._repr_html_())
        assert "script" not in page.tags, name
        assert any(NAMES[1] in row[0] for row in page.rows), name
        assert not re.search(r"https?://|src=\"(?!data:)", result._repr_html_()), name


def test_a_leaderboard_has_bars(audit: Audit, audit_of: Make) -> None:
    board: Leaderboard = cw.leaderboard({"a": audit, "b": audit}, printed=False)
    page = Page(board._repr_html_())
    assert board._repr_html_().count("linear-gradient(to right") == 2
    assert page.rows[0][:2] == ["model", "rank"]


def shown(audit: Audit) -> dict[str, str]:
    """What a notebook is given of an audit's chart."""
    made: Any = audit.chart()._repr_mimebundle_()
    bundle: dict[str, str] = made[0] if isinstance(made, tuple) else made
    return bundle


class TestCharts:
    def test_every_result_has_a_usual_one(self, audit: Audit, audit_of: Make) -> None:
        assert audit.chart().to_dict()["$schema"]
        assert audit.chart("confusion").to_dict() != audit.chart().to_dict()
        made = results(audit, audit_of)
        for name in ("comparison", "groups", "training"):
            assert made[name].chart().to_dict()["$schema"], name
        with pytest.raises(cw.UserError, match="unknown figure 'forst'; did you mean 'forest'"):
            audit.chart("forst")

    def test_a_chart_is_shown_without_a_network(self, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLASSWISE_CHARTS", "")
        offline._once.cache_clear()
        first, second = shown(audit), shown(audit)
        assert set(first) == {"text/html", "image/svg+xml"}
        assert len(first["text/html"]) > 500_000  # Vega comes with the first one
        assert len(second["text/html"]) < 200_000
        assert "window.vegaEmbed" in second["text/html"]
        for text in (first["text/html"], second["text/html"]):
            outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
            assert not re.search(r"(src|href)=\"(?!data:)", outside)
            assert "<script src" not in outside

    def test_a_static_chart_has_no_script(self, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLASSWISE_CHARTS", "static")
        made = offline.bundle(audit.chart().to_dict())
        assert "<script" not in made["text/html"]
        assert made["image/svg+xml"].startswith("<svg")

    def test_a_renderer_of_the_users_own_is_kept(self, audit: Audit) -> None:
        before = alt.renderers.active
        try:
            alt.renderers.enable("json")
            audit.chart()
            assert alt.renderers.active == "json"
            alt.renderers.enable("default")
            offline.use()
            assert alt.renderers.active == offline.NAME
        finally:
            alt.renderers.enable(before)

    def test_no_text_of_a_chart_can_end_its_script(self) -> None:
        chart = figures.styled(alt.Chart(pd.DataFrame({"a": ["</script><b>"]})).mark_point().encode(x="a:N"))
        text = offline.bundle(chart.to_dict())["text/html"]
        assert "</script><b>" not in text
        script = re.findall(r"specification = (\{.*?\});\n", text)[0]
        assert "</script><b>" in json.dumps(json.loads(script))


@pytest.mark.browser
def test_charts_become_interactive_in_a_browser_without_a_network(audit: Audit, tmp_path: Path) -> None:
    offline._once.cache_clear()
    cells = "".join(f'<div class="cell">{shown(audit)["text/html"]}</div>' for _ in range(2))
    (tmp_path / "notebook.html").write_text(f'<!doctype html><meta charset="utf-8">{cells}', encoding="utf-8")
    page = browser.start(tmp_path / "profile")
    try:
        browser.opened(page, (tmp_path / "notebook.html").as_uri())
        drawn = "return document.querySelectorAll('.cell .vega-embed svg').length"
        WebDriverWait(page, 20).until(lambda page: page.execute_script(drawn) == 2)
        assert page.execute_script("return document.querySelectorAll('.cell img').length") == 0
        assert not [url for url in browser.requests(page) if url.startswith("http")]
    finally:
        page.quit()


def test_what_nobody_can_show_is_said() -> None:
    with pytest.raises(TypeError, match="how a notebook shows a int"):
        notebook.html(3)
    with pytest.raises(cw.UserError, match="no figure of a int"):
        notebook.chart(3)
