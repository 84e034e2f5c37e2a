"""The run folder: what was asked, so that the same command goes on and another one is refused.

config.toml        the settings, with fingerprints of model and data, and the plan
records/*.parquet  the rows, part by part
summary.json, tables/*.csv   written at the end
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from torch import nn

from classwise.core.errors import UserError
from classwise.core.records import digest
from classwise.core.run_folder import damaged, read_config, same
from classwise.core.storage import remove, write_text
from classwise.data.images import Images
from classwise.engine.evaluation import BatchPlan
from classwise.results.audit_result import refuse_other_kind

#: All that an audit or a search leaves, and the mark of a study whose job it was; what says that it is finished first.
_FILES = (
    "job.json", "summary.json", "worst.json", "worst.csv", "tables/*.csv", "adversarial/*.npz", "records/*.parquet",
    "*/*.partial", "log.txt", "config.toml",
)  # fmt: skip


def fingerprint_model(model: nn.Module) -> str:
    """A hash of every weight and buffer, so that a resumed run cannot mix two models."""
    whole = hashlib.sha256(str(getattr(model, "identity", "")).encode())  # of what has no weights to look at
    for name, tensor in sorted(model.state_dict().items()):
        whole.update(f"{name}{tuple(getattr(tensor, 'shape', ()))}".encode())
        if hasattr(tensor, "detach"):
            whole.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).tobytes())
    return whole.hexdigest()


def fingerprint_data(images: Images) -> str:
    """A hash of which examples, their labels, and the pixels of a few of them."""
    few = np.unique(np.linspace(0, len(images) - 1, 8).astype(np.int64))
    parts = (images.positions, images.labels, images.batch(few)[0].cpu().numpy())
    return digest(np.concatenate([np.frombuffer(part.tobytes(), np.uint8) for part in parts]))


def settle(folder: Path, config: Mapping[str, Any], plan: BatchPlan, overwrite: bool = False) -> BatchPlan:
    """Make the run folder, or check that it was made with these settings; return the plan the run began with."""
    path = folder / "config.toml"
    refuse_other_kind(folder, "audit")
    try:
        if overwrite:
            remove(folder, _FILES)
        if path.exists():
            return _resume(path, config)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; --out must be a folder.")
        if any(folder.glob("records/*.parquet")):
            raise UserError(f"{folder} holds records but no config.toml; choose another --out, or --overwrite.")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot use {folder} as a run folder: {error.strerror or error}.") from error
    write_text(path, tomli_w.dumps(plain({**config, "plan": vars(plan)})))
    return _resume(path, config)


def _resume(path: Path, config: Mapping[str, Any]) -> BatchPlan:
    """The plan a run began with, as the folder has it, once its settings are found to be these."""
    stored = read_config(path.parent)
    try:
        plan = BatchPlan(**stored.pop("plan"))
    except (KeyError, TypeError, UserError) as error:
        raise damaged(path, str(error)) from error
    check_same(path.parent, stored, config)
    return plan


def check_same(folder: Path, stored: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise, with what differs, where a run folder was made with other settings than these."""
    # The attacks' order counts too: it names the parts, and says what still stands when an attack begins.
    old, new = ({**flat(tree), "attacks": [*tree.get("attacks", ())]} for tree in (stored, plain(config)))
    differing = [key for key in sorted({*old, *new}) if not same(old.get(key), new.get(key)) and _counts(key)]
    lines = [_line(name, old, new) for key in differing for name in _reasons(key, old, new)]
    if lines:
        raise UserError(
            f"{folder} was made with other settings:\n" + "\n".join(list(dict.fromkeys(lines))[:8]) + "\n"
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
    """Whether a setting decides what the records are; the others only tell how it came about."""
    return not key.startswith(("versions.", "command.")) and key not in ("model.spec", "model.weights_sha256")


def _reasons(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The settings behind a difference: of a fingerprint those that made it differ, as far as the folder knows them."""
    told = any(name.startswith("command.") for name in old)  # older folders do not say what was given
    names = [name for name in _WHY.get(key, ()) if told or not name.startswith("command.")]
    if same(old.get("model.weights_sha256"), new.get("model.weights_sha256")):
        names = [name for name in names if name != "command.weights"]  # the same file, at another place
    return [name for name in names if not same(old.get(name), new.get(name))] or [key]


def _line(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    there, now = (json.dumps(tree[key]) if key in tree else "absent" for tree in (old, new))
    return f"  {key.removeprefix('command.')}: {there} there, {now} now"


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
