"""A real browser for tests of pages: started offline, driven by selenium, and what axe finds in a page."""

from __future__ import annotations

import importlib.resources
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1280,900",
)


def start(profile: Path) -> Any:
    """A headless browser that reaches no host; skips, or fails if one is required, where there is none."""
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    chauffeur = shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        webdriver = None
    if not (browser and chauffeur and webdriver):
        reason = f"a browser test needs Chromium ({browser}), chromedriver ({chauffeur}) and selenium ({webdriver})"
        if os.environ.get("CLASSWISE_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(chauffeur))


def opened(browser: Any, address: str) -> Any:
    """The page as it is first seen: nothing kept from the test before."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    browser.execute_script("try { localStorage.clear() } catch (error) {}")
    return browser


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent.trim())", selector
    )
    return found


def click(page: Any, selector: str) -> None:
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


def write_into(page: Any, selector: str, text: str) -> None:
    field = page.find_element("css selector", selector)
    field.clear()
    field.send_keys(text)


def press(page: Any, *keys: str) -> None:
    page.switch_to.active_element.send_keys(*keys)


def serious(page: Any) -> list[tuple[str, str]]:
    """What axe finds wrong with the page as it is now, if that is serious."""
    axe = pytest.importorskip("axe_core_python")
    page.execute_script((importlib.resources.files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    result = page.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    assert len(result["passes"]) > 20
    return [
        (violation["id"], violation["nodes"][0]["html"][:200])
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def requests(page: Any) -> list[str]:
    """Every address that the page asked for."""
    sent = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    return [message["params"]["request"]["url"] for message in sent if message["method"] == "Network.requestWillBeSent"]


def downloaded(browser: Any, folder: Path, selector: str) -> Path:
    """The file that a click saves."""
    folder.mkdir()
    settings = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", settings)
    click(browser, selector)
    for _ in range(100):
        found = [path for path in folder.iterdir() if path.suffix not in (".crdownload", ".tmp")]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"nothing was saved by {selector}")
