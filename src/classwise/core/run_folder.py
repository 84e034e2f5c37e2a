"""The files of an audit's run folder, as far as reading it goes: settings, parts in their order, and whether they are
all there. Nothing here needs torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.storage import safe_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PART = re.compile(r"(?P<place>\d+)-(?P<attack>.+)-(?P<number>\d{5})")
_SECTIONS = ("audit", "model", "data", "attacks", "command", "versions", "plan")
_NAMED = 5  # examples or files that an error names


def part_name(place: int, attack: str, number: int) -> str:
    """``01-pgd-20-00003``: sorts by attack in the order they ran, then by part."""
    return f"{place:02d}-{safe_name(attack)}-{number:05d}"


def attack_files(folder: Path, attack: str) -> list[Path]:
    """The files of a folder that `part_name` gave the attack's name, whatever its place."""
    named = ((path, _PART.fullmatch(path.stem)) for path in sorted(folder.glob("*")))
    return [path for path, match in named if match is not None and match["attack"] == safe_name(attack)]


def read_config(folder: Path) -> dict[str, Any]:
    """The settings a run folder was made with; empty if they are not there."""
    path = folder / "config.toml"
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, OSError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    tables = {name: config[name] for name in _SECTIONS if name in config and "method" not in config}
    for name, table in {**tables, **{f"attacks.{k}": v for k, v in _table(tables.get("attacks")).items()}}.items():
        if not isinstance(table, dict):
            raise damaged(path, f"{name} is {table!r}, not a table")
    return config


def same(one: Any, other: Any) -> bool:
    """Whether two settings are equal; fingerprints of older runs are the first 16 digits of the whole ones."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str) and isinstance(other, str) and spec.same(one, other):
        return True
    texts = sorted((str(one), str(other)), key=len)
    short = tuple(map(len, texts)) == (16, 64) and texts[1].startswith(texts[0])
    return bool(one == other) or short


def damaged(path: Path, reason: str) -> UserError:
    """An error for a config.toml that cannot be what was written."""
    return UserError(
        f"{path} is damaged ({reason}). Restore it from a copy, or begin the run from scratch with --overwrite."
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Layout:
    """A folder of parts, and the settings of its run as far as they are there."""

    folder: Path
    parts: tuple[Path, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path) -> Layout:
        """Of a run folder, or of the folder of parts in it."""
        records = folder / "records" if (folder / "records").is_dir() else folder
        parts = tuple(sorted(records.glob("*.parquet")))
        if not parts:
            raise UserError(f"no records (*.parquet) in {records}. Is it a run folder of an audit that has begun?")
        return cls(records, parts, read_config(records.parent if records.name == "records" else records))

    def order(self, names: Sequence[str]) -> list[str]:
        """The attacks in the order they ran: that of config.toml, else of the numbers in the parts' names."""
        asked = list(_table(self.config.get("attacks")))
        if set(asked) >= set(names):
            return [name for name in asked if name in names]
        numbers = {m["attack"]: int(m["place"]) for m in map(_PART.fullmatch, (p.stem for p in self.parts)) if m}
        return sorted(names, key=lambda name: (name != "clean", numbers.get(safe_name(name), len(numbers))))

    def check_covered(
        self, frame: pd.DataFrame, names: Sequence[str], survivors: Sequence[str], searched: bool
    ) -> None:
        """Raise, with what is missing or doubled, unless each attack has one row of each example it was shown.

        survivors: the attacks that were shown only what no earlier one had broken.
        searched: whether only some examples were attacked at all, by a search for the worst class.
        """
        problems = list(self._problems(frame, names, survivors, searched))
        if problems:
            absent = [] if searched else self._absent(names)
            files = f" Not there: {_some(absent)}." if absent else ""
            raise UserError(
                f"the records in {self.folder} do not hold each example once: {'; '.join(problems)}.{files} Repeat the "
                "audit's command, which computes what is missing; remove files that do not belong there."
            )

    def _problems(
        self, frame: pd.DataFrame, names: Sequence[str], survivors: Sequence[str], searched: bool
    ) -> Iterator[str]:
        rows = {name: frame[(frame["attack"] == name).to_numpy()] for name in names}
        for name, own in rows.items():
            if (twice := own["index"].duplicated()).any():
                yield f"{name} has examples twice: {_some(own['index'][twice])}"
        if "clean" not in rows:
            return
        everything = rows["clean"]["index"].to_numpy()
        count = _table(self.config.get("data")).get("examples")
        if count is not None and count != len(set(everything.tolist())):
            yield f"clean has {len(set(everything.tolist()))} of {count} examples"
        left = everything[(rows["clean"]["label"] == rows["clean"]["prediction"]).to_numpy()]
        for name in (name for name in names if name != "clean"):
            own = rows[name]
            seen = own["index"].to_numpy()
            expected = left if name in survivors else everything
            if searched and name == next((n for n in names if n != "clean"), None):
                expected = np.intersect1d(left, seen)
            if (missing := np.setdiff1d(expected, seen)).size:
                yield f"{name} lacks {missing.size} of {len(expected)} examples: {_some(missing)}"
            if (other := np.setdiff1d(seen, expected)).size:
                yield f"{name} has {other.size} examples that it was not shown: {_some(other)}"
            left = np.setdiff1d(
                expected if name in survivors else left, own["index"][own["label"] != own["prediction"]]
            )

    def _absent(self, names: Sequence[str]) -> list[str]:
        """Parts that the plan asks for and the folder lacks."""
        examples, part = (_table(self.config.get(k)).get(n) for k, n in (("data", "examples"), ("plan", "part")))
        if not isinstance(examples, int) or not isinstance(part, int) or part < 1:
            return []
        numbers = range(-(-examples // part))
        wanted = (part_name(at, name, n) for at, name in enumerate(names) for n in numbers)
        return [f"{name}.parquet" for name in wanted if not (self.folder / f"{name}.parquet").exists()]


def _some(values: Any) -> str:
    shown = [str(value) for value in values]
    return ", ".join(shown[:_NAMED]) + (f", … ({len(shown)} in all)" if len(shown) > _NAMED else "")
