"""The entries of references.bib by their keys."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from classwise.core.errors import lookup
from classwise.core.version import __version__

OWN = "classwise"  # the key of the program itself

_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,\s]+),.*?^\}", re.MULTILINE | re.DOTALL)


def entry(paper: str) -> str:
    """The BibTeX entry of a key; what is BibTeX already, as it is."""
    return paper.strip() if paper.lstrip().startswith("@") else lookup("paper", paper, entries())


@functools.cache
def entries() -> dict[str, str]:
    """Every entry, with the version of classwise filled in."""
    text = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8")
    found = {match["key"]: match[0] for match in _ENTRY.finditer(text)}
    return {**found, OWN: found[OWN].replace("VERSION", __version__)}
