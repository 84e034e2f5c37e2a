"""The settings of a run in TOML: reading and writing them, and whether two runs have the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.storage import atomic_write_text
from classwise.core.toml import tomllib

_TABLES = ("audit", "model", "data", "attacks", "criteria", "command", "versions", "plan")  # of the config of an audit
_MOST_LINES = 8  # differences that an error names


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a file; empty if it is not there."""
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, OSError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    tables = {name: config[name] for name in _TABLES if name in config and "method" not in config}
    for name, table in {**tables, **{f"attacks.{k}": v for k, v in as_table(tables.get("attacks")).items()}}.items():
        if not isinstance(table, dict):
            raise damaged(path, f"{name} is {table!r}, not a table")
    return config


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Store settings atomically."""
    atomic_write_text(path, tomli_w.dumps(plain(config)))


def damaged(path: Path, reason: str) -> UserError:
    """An error for a config.toml that cannot be what was written."""
    return UserError(
        f"{path} is damaged ({reason}). Restore it from a copy, or begin the run from scratch with --overwrite."
    )


def as_table(value: Any) -> Mapping[str, Any]:
    """The value if it is a table; an empty one if it is absent or damaged."""
    return value if isinstance(value, dict) else {}


def plain(value: Any) -> Any:
    """The value in types TOML knows; None is left out."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"train": {"epochs": 3}}`` as ``{"train.epochs": 3}``."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


#: Of a coverage; of an attack from a file or a library.
_NEW_WORDS = {"standing": "survivors", "foreign_attacks": "foreign"}


def same(one: Any, other: Any) -> bool:
    """Whether two settings are equal; older runs have the first 16 digits of a fingerprint, and other words."""
    one, other = (_NEW_WORDS.get(value, value) if isinstance(value, str) else value for value in (one, other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str) and isinstance(other, str) and _same_specs(one, other):
        return True
    texts = sorted((str(one), str(other)), key=len)
    short = tuple(map(len, texts)) == (16, 64) and texts[1].startswith(texts[0])
    return bool(one == other) or short


def _same_specs(one: str, other: str) -> bool:
    """Whether two specs say the same, one of them perhaps with the signs of older ones."""
    try:
        (name, own), (other_name, theirs) = spec.split(one), spec.split(other)
    except UserError:
        return False
    if name != other_name or own.keys() != theirs.keys() or not own:
        return False
    lists = {key: (spec.items(own[key]), spec.items(theirs[key])) for key in own}
    return all(a == b or same(spec.nested(own[key]), spec.nested(theirs[key])) for key, (a, b) in lists.items())


def check_same(folder: Path, stored: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise, with what differs, where a run folder was made with other settings than these."""
    # The attacks' order counts too: it names the parts, and decides which examples survive until an attack begins.
    old, new = ({**flat(tree), "attacks": [*tree.get("attacks", ())]} for tree in (stored, plain(config)))
    differing = [key for key in sorted({*old, *new}) if not same(old.get(key), new.get(key)) and _counts(key)]
    lines = [_line(name, old, new) for key in differing for name in _reasons(key, old, new)]
    if lines:
        raise UserError(
            f"{folder} was made with other settings:\n" + "\n".join(list(dict.fromkeys(lines))[:_MOST_LINES]) + "\n"
            "Choose another --out, repeat the old command to resume it, or --overwrite to begin from scratch."
        )


#: Fingerprints, and the settings that may be why they differ.
_WHY = {
    "model.fingerprint": (
        "model.spec", "command.weights", "model.weights_sha256", "command.normalize", "command.num_classes",
    ),
    "data.fingerprint": tuple(f"command.{name}" for name in ("data", "root", "split", "classes", "per_class", "limit")),
}  # fmt: skip


def _counts(key: str) -> bool:
    """Whether a setting decides what the records are; the others only record how the run was started."""
    started = key.startswith(("versions.", "command.", "criteria."))
    return not started and key not in ("model.spec", "model.weights_sha256")


def _reasons(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The settings behind a difference: of a fingerprint those that made it differ, as far as the folder knows them."""
    recorded = any(name.startswith("command.") for name in old)  # older folders do not record the command
    names = [name for name in _WHY.get(key, ()) if recorded or not name.startswith("command.")]
    if same(old.get("model.weights_sha256"), new.get("model.weights_sha256")):
        names = [name for name in names if name != "command.weights"]  # the same file, at another place
    return [name for name in names if not same(old.get(name), new.get(name))] or [key]


def _line(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    there, now = (json.dumps(tree[key]) if key in tree else "absent" for tree in (old, new))
    return f"  {key.removeprefix('command.')}: {there} there, {now} now"
