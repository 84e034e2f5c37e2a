"""Groups of runs, one run per training seed: which folders belong to a group, and which runs of two groups are pairs.

    trades=runs/trades-*                       the folders of a pattern, whether or not the shell expands it
    trades=runs/trades-0,runs/trades-1         folders, or patterns, one after the other

Runs are paired by what differs in the names of a group's folders: runs/trades-0 and runs/trades-1 are 0 and 1, and so
are seed0/wat and seed1/wat.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from classwise.core.errors import UserError
from classwise.results.audit_result import Audit, unique_names

Pairing = Literal["auto", "name", "position", "none"]
Variance = Literal["pooled", "own"]

_PATTERN = re.compile(r"[*?\[]")


def parse(texts: Sequence[str]) -> dict[str, list[Path]]:
    """Groups from texts such as ``trades=runs/trades-*``, by name."""
    groups: dict[str, list[Path]] = {}
    for text in texts:
        name, sign, folders = text.partition("=")
        if not (name and sign and folders):
            raise UserError(f"a group is NAME=FOLDERS, such as trades='runs/trades-*'; got {text!r}.")
        if name in groups:
            raise UserError(f"the group {name} is given twice; list its folders in one, separated by commas.")
        groups[name] = folders_of(folders.split(","), name)
    return groups


def folders_of(texts: Sequence[str | Path], name: str) -> list[Path]:
    """The folders of a group, patterns expanded in the order of the numbers in their names."""
    found: list[Path] = []
    for text in map(str, texts):
        if not text:
            raise UserError(f"the group {name} has an empty folder between two commas; leave it out.")
        if _PATTERN.search(text) and not Path(text).exists():
            matched = sorted((Path(path) for path in glob.glob(text) if Path(path).is_dir()), key=_by_number)
            if not matched:
                raise UserError(f"no folder matches {text} of the group {name}; name run folders of finished audits.")
            found += matched
        else:
            found.append(Path(text))
    return found


def read(groups: Mapping[str, Mapping[str, Audit] | Sequence[str | Path] | str | Path]) -> dict[str, dict[str, Audit]]:
    """The audits of every group, by the names of their folders; a group may also hold audits by name."""
    made: dict[str, dict[str, Audit]] = {}
    folders: list[Path] = []
    for name, given in groups.items():
        if isinstance(given, Mapping):
            made[name] = dict(given)
            continue
        own = folders_of([given] if isinstance(given, (str, Path)) else given, name)
        folders += own
        made[name] = {run: Audit.load(folder) for run, folder in zip(unique_names(own), own, strict=True)}
    unique_names(folders)  # none is in two groups
    return made


def pairs(groups: Mapping[str, Sequence[str]], control: str, name: str, how: Pairing) -> tuple[list[int] | None, str]:
    """For each run of the control the place of its partner in the other group, None if they are not paired; and why."""
    mine, theirs = groups[control], groups[name]
    if how == "none":
        return None, "not paired, as asked for"
    if how == "position":
        if len(mine) != len(theirs):
            raise UserError(
                f"{control} has {len(mine)} runs and {name} {len(theirs)}: they cannot be paired by position. Give as "
                "many of each, or compare them unpaired (--pair none)."
            )
        return list(range(len(mine))), "paired in the order given"
    keys, others = _keys(mine), _keys(theirs)
    if set(keys) == set(others) and len(set(keys)) == len(keys):
        return [others.index(key) for key in keys], "paired by the names of the folders"
    alone = [key for key in (*keys, *others) if (key in keys) != (key in others)]
    if how == "name":
        raise UserError(
            f"{control} and {name} cannot be paired by the names of their folders: {', '.join(alone)} only in one of "
            "them. Give the same seeds of both, or --pair position or none."
        )
    return None, f"not paired: {', '.join(alone)} only in one of them"


def _keys(names: Sequence[str]) -> list[str]:
    """What differs in the names: their numbers and words, less those that all have at the same place."""
    split = [re.findall(r"\d+|[^\W\d_]+", name) for name in names]
    if len({len(words) for words in split}) > 1:
        return list(names)
    differing = [place for place, words in enumerate(zip(*split, strict=True)) if len(set(words)) > 1]
    return ["-".join(words[place] for place in differing) for words in split]


def _by_number(path: Path) -> list[tuple[int, str]]:
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.findall(r"\d+|\D+", str(path))]
