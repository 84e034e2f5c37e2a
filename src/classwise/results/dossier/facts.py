"""What no measurement can know, from a TOML file that the user fills: purpose, operating domain, reasons, names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError, check_known, unknown
from classwise.core.toml import tomllib
from classwise.results import criteria as criteria_files
from classwise.results.criteria import Criteria

#: Every fact by its table and key, with what it asks; the template and the check of a file are made of it.
FACTS: dict[str, dict[str, str]] = {
    "system": {
        "name": "What the model is called.",
        "version": "Its version.",
        "provider": "Who provides it.",
        "purpose": "What it is for.",
        "operating_domain": "Where and under which conditions it is used: sensors, places, users, throughput.",
        "out_of_scope": "Uses and conditions it is not meant for.",
    },
    "data": {
        "description": "What the audited images are, and how they were collected.",
        "represents": "Why they represent the operating domain, and where they do not.",
    },
    "threat": {
        "eps_reason": "Why this radius: what an attacker could do, what a person would notice, a standard.",
        "goal": "What an attacker gains by a misclassification.",
        "knowledge": "What a real attacker may know of the model.",
        "capability": "What a real attacker may change, and how often they may query the model.",
    },
    "responsible": {
        "name": "Who is responsible for this test report.",
        "role": "In which role.",
        "organisation": "For whom.",
        "date": "The date of the report, such as 2026-03-31.",
    },
    "software": {"commit": "The commit of the code that trained or serves the model."},
}
#: Tables and keys of other kinds.
_LISTS = {("data", "files"): "files of the data", ("limits", "known"): "known limits"}
_FREE = ("criticality", "criteria")

_HEAD = """\
# Facts for an audit dossier: what no measurement can know.
# classwise dossier RUN … --facts THIS_FILE --out dossier
# A fact that is left empty is shown as "not stated".
"""
_FILES = "files = []                      # Files of the data to take digests of, from this file's folder.\n"
_REST = """
[limits]
known = []                      # Limits you know of, a sentence each.

[criticality]                   # Of each class that matters: how critical an error is, and why.
# "cat" = "high: a missed cat is run over"

# [criteria]                    # What must hold, as in gate.toml, if the audit was made without --require.
# require = ["worst>=0.25"]
"""


@dataclass(frozen=True)
class Facts:
    """The facts of a file. values: by table and key, those that are stated. folder: where named files lie."""

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    criticality: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    criteria: Criteria = field(default_factory=Criteria)
    folder: Path = Path()

    def get(self, table: str, key: str) -> str | None:
        return self.values.get(table, {}).get(key)

    def missing(self) -> list[str]:
        """The facts that are not stated, as table.key."""
        return [f"{table}.{key}" for table, keys in FACTS.items() for key in keys if self.get(table, key) is None]

    def check_classes(self, names: tuple[str, ...]) -> None:
        """An error for a class that the audits have not."""
        check_known("class in [criticality]", names, *self.criticality)


def template() -> str:
    """A file of facts to fill."""
    parts = [_HEAD]
    for table, keys in FACTS.items():
        parts.append(f"\n[{table}]\n")
        for key, text in keys.items():
            assignment = f'{key} = ""'
            parts.append(f"{assignment:<31} # {text}\n")
        if table == "data":
            parts.append(_FILES)
    return "".join((*parts, _REST))


def read(path: Path) -> Facts:
    """The facts of a TOML file; what it says that is no fact is an error."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the facts in {path}: {error}. Write a file to fill with: classwise dossier --template FILE."
        ) from error
    try:
        return _facts(found, path.parent)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _facts(found: Mapping[str, Any], folder: Path) -> Facts:
    tables = {**{table: tuple(keys) for table, keys in FACTS.items()}, "limits": (), "criticality": (), "criteria": ()}
    values: dict[str, dict[str, str]] = {}
    lists: dict[tuple[str, str], tuple[str, ...]] = {}
    for table, own in found.items():
        if table not in tables:
            raise unknown("table of facts", table, tables)
        if not isinstance(own, Mapping):
            raise UserError(f"{table} is a table: write [{table}] and its facts below; got {own!r}.")
        for key, value in own.items() if table not in _FREE else ():
            if (table, key) in _LISTS:
                lists[table, key] = _texts(value, f"{table}.{key}")
            elif key not in tables[table]:
                more = [name for of, name in _LISTS if of == table]
                raise unknown(f"fact of [{table}]", key, (*tables[table], *more))
            elif text := _text(value, f"{table}.{key}"):
                values.setdefault(table, {})[key] = text
    return Facts(
        values,
        {str(name): _text(value, f"criticality.{name}") for name, value in found.get("criticality", {}).items()},
        lists.get(("limits", "known"), ()),
        lists.get(("data", "files"), ()),
        criteria_files.from_dict(found.get("criteria", {})),
        folder,
    )


def _text(value: Any, name: str) -> str:
    """A text, a number or a date as text."""
    if isinstance(value, (Mapping, list)):
        raise UserError(f"{name} is a text; got {value!r}.")
    return str(value).strip()


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UserError(f"{name} is a list of texts; got {value!r}.")
    return tuple(text.strip() for text in value if text.strip())
