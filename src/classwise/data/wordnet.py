"""Readable class names for WordNet ids: ``n01443537`` is "goldfish"."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from classwise.core.errors import UserError


def read_words(path: Path) -> dict[str, str]:
    """Id to first synonym, from lines such as ``n01443537 goldfish, Carassius auratus``."""
    lines = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return {line[0]: line[1].split(",")[0].strip() for line in lines if len(line) == 2}


def read_class_index(path: Path) -> dict[str, str]:
    """Id to name, from the JSON ``{"0": ["n01440764", "tench"], …}``."""
    try:
        return {wnid: name.replace("_", " ") for wnid, name in json.loads(path.read_text(encoding="utf-8")).values()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f'{path} is not of the form {{"0": ["n01440764", "tench"], …}}: {error}. Correct it or remove it.'
        ) from error


def class_names(wnids: Sequence[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """A name for each id: its word, with the id added where two share a word ("crane"), the id where none is known."""
    names = [words.get(wnid, wnid) for wnid in wnids]
    times = Counter(names)
    return tuple(f"{name} ({wnid})" if times[name] > 1 else name for wnid, name in zip(wnids, names, strict=True))
