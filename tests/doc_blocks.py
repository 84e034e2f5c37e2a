"""The code blocks of the documentation, as they are written: language, title, and the note before a block.

A note is an HTML comment, so that readers of the page do not see it and readers of the file do:

    <!-- example: with cifar10, short training -->      run, with these stand-ins (stand_ins.py)
    <!-- example: only checked, synopsis -->            not run, for this reason; commands and options must still exist
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_NOTE = re.compile(r"<!--\s*example:\s*(?:with (?P<stand_ins>.+?)|only checked, (?P<unrun>.+?)|(?P<other>.*?))\s*-->")
_TITLE = re.compile(r'title="(?P<title>[^"]+)"')
_PROGRAMS = ("classwise", "make", "pip", "python", "torchrun")


@dataclass(frozen=True)
class Block:
    """A block of code. `stand_ins`: what it is run with; `unrun`: why it is only checked, None if it runs."""

    page: Path
    line: int
    language: str
    text: str
    title: str | None = None
    stand_ins: tuple[str, ...] = ()
    unrun: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order. An indented block of commands is "console"; any other must say what it is."""
    note = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        line = (token.map or [0])[0] + 1
        if token.type in ("fence", "code_block"):
            language, _, rest = token.info.strip().partition(" ")
            title = _TITLE.search(rest)
            stand_ins, unrun = _read_note(note, f"{page.name}:{line}")
            language = language or ("console" if token.content.split(maxsplit=1)[0] in _PROGRAMS else "")
            yield Block(page, line, language, token.content, title and title["title"], stand_ins, unrun)
        note = token.content if token.type == "html_block" else ""


def _read_note(note: str, where: str) -> tuple[tuple[str, ...], str | None]:
    match = _NOTE.search(note)
    if match is None:
        return (), None
    if match["other"] is not None:
        raise ValueError(f"{where}: {note.strip()} is no note; write 'with NAME, …' or 'only checked, REASON'.")
    return tuple(name.strip() for name in (match["stand_ins"] or "").split(",") if name.strip()), match["unrun"]


def commands(text: str) -> list[list[str]]:
    """The commands of a console block, each as its words; comments and prompts are left out."""
    joined = text.replace("\\\n", " ")
    split = (shlex.split(line.removeprefix("$ "), comments=True) for line in joined.splitlines())
    return [words for words in split if words]


def shell_lines(pipeline: str) -> list[str]:
    """The shell scripts of a GitHub workflow or a GitLab job, in order."""
    (name, job), *_ = ((name, job) for name, job in yaml.safe_load(pipeline).items() if isinstance(job, dict))
    if name == "jobs":
        (job,) = job.values()
        return [step["run"] for step in job["steps"] if "run" in step]
    return list(job["script"])


def inline_commands(page: Path) -> Iterator[tuple[int, str]]:
    """Commands in the running text, `classwise …`, with the line of their paragraph."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("classwise "):
                yield (token.map or [0])[0] + 1, child.content


def links(page: Path) -> Iterator[str]:
    """The relative links of a page, without anchors and addresses."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            target = str(child.attrGet("href") or child.attrGet("src") or "")
            if target and not re.match(r"[a-z]+:|#", target):
                yield target.partition("#")[0]
