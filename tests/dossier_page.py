"""A dossier's page as it is read: its numbers with where they come from, all other text, and its tables."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from classwise.core.format import fixed, interval, percent, points


class Reader(HTMLParser):
    """The texts of a page: the numbers that carry a path, and all the rest; and the tables as rows of texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, list[list[Any]], str]] = []
        self.rest = ""
        self.tables: list[list[list[str]]] = []
        self._now: tuple[str, list[list[Any]]] | None = None
        self._skip = self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("data-path"):
            self._now = (str(given["data-form"]), json.loads(str(given["data-path"])))
        if tag in ("script", "style"):
            self._skip = True
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._skip = False
        if tag == "span":
            self._now = None
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._skip:
            return
        if self._now is not None:
            self.numbers.append((*self._now, data))
        else:
            self.rest += f"{data} "
        if self._in_cell:
            self.tables[-1][-1][-1] += data


def at(tree: Any, path: list[Any]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


WRITTEN = {
    "percent": percent,
    "interval": interval,
    "count": lambda value: f"{value:,}",
    "fixed": lambda value: fixed(value, 3),
    "points": points,
}


def wrong_numbers(folder: Path) -> list[tuple[Any, str]]:
    """The numbers of a dossier's page that are not those of its data, and those of its data that are not in the
    summary.json of the run."""
    stored = json.loads((folder / "dossier.json").read_text(encoding="utf-8"))
    page = Reader((folder / "dossier.html").read_text(encoding="utf-8"))
    assert len(page.numbers) >= 60, "too few numbers to mean anything"
    wrong: list[tuple[Any, str]] = [
        (paths, text)
        for form, paths, text in page.numbers
        if text != WRITTEN[form](*(at(stored, path) for path in paths))
    ]
    for run, own in stored["results"].items():
        summary = json.loads((folder / "runs" / run / "summary.json").read_text(encoding="utf-8"))
        there = {**summary["attacks"], "worst_case": summary["worst_case"]}
        for attack, entry in own["attacks"].items():
            kept = ("accuracy", "accuracy_low", "accuracy_high", "average", "worst")
            wrong += [((run, attack, key), str(entry[key])) for key in kept if entry[key] != there[attack][key]]
            for mine, theirs in zip(entry["classes"], there[attack]["by_class"], strict=True):
                plain = {key: value for key, value in mine.items() if not key.startswith("simultaneous")}
                wrong += [((run, attack, mine["class"], k), str(v)) for k, v in plain.items() if theirs[k] != v]
    return wrong
