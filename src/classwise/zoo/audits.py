"""Audits in the zoo: run folders that `classwise show`, `compare` and `report` read, without what makes them large."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.auditing.audit import audit_by
from classwise.auditing.recorded import config_of
from classwise.core.records import CLEAN, Array, Records
from classwise.core.run_config import write_config
from classwise.core.run_folder import AuditFolder
from classwise.core.storage import atomic_write_text, safe_name
from classwise.results.audit_result import Audit

#: Options of an audit that are of one machine, or say where the model was.
HERE = ("model", "weights", "normalize", "num_classes", "root", "device", "batch_size", "workers", "trust")
_SHORTENED = ("confidence", "true_prob", "loss")


@dataclass(frozen=True)
class Changed:
    """How two audits of the same images differ: rows in all, and those of each attack that are predicted otherwise."""

    rows: int
    differing: Mapping[str, int]

    def __bool__(self) -> bool:
        return any(self.differing.values())

    def __str__(self) -> str:
        each = ", ".join(f"{count} under {name}" for name, count in self.differing.items() if count)
        return f"{sum(self.differing.values()):,} of {self.rows:,} predictions differ ({each or 'none'})"


def store(audit: Audit, folder: Path, spec: str) -> None:
    """Write an audit as that of the model `spec` of the zoo. The records are one file, without the probabilities of all
    classes and with three digits of the others and of the loss; predictions and distances are exact. Adversarial images
    and tables are left out, and what is true of one machine only."""
    run = AuditFolder(folder)
    given = audit.config.get("command", {})
    command = {"model": spec} | {name: value for name, value in given.items() if name not in HERE}
    model = {"spec": spec, "fingerprint": audit.config["model"]["fingerprint"]}
    asked = {**audit.config["audit"], "probs": False, "save_adversarial": False}
    frame = audit.records.frame.sort_values("index", kind="stable")
    order = {name: place for place, name in enumerate(audit.names)}
    frame = frame.iloc[frame["attack"].map(order).argsort(kind="stable")].reset_index(drop=True)
    frame = frame.assign(**{name: _short(frame[name].to_numpy()) for name in _SHORTENED})
    Records(frame, audit.records.meta).write(run.part(0, "all", 0))
    atomic_write_text(run.summary_file, json.dumps(audit.summary(), separators=(",", ":"), allow_nan=False) + "\n")
    write_config(run.config_file, {**audit.config, "audit": asked, "model": model, "command": command})


def _short(values: Array) -> Array:
    """The numbers with three significant digits, which take a third of the room."""
    known = np.isfinite(values) & (values != 0)
    scale = 10.0 ** (2 - np.floor(np.log10(np.abs(values, where=known, out=np.ones(len(values))))))
    return np.where(known, np.round(values * scale) / scale, values).astype(np.float32)


def repeat(audit: Audit, checkpoint: Path, folder: Path, root: Path | None) -> Audit:
    """The same audit of another checkpoint."""
    own = {"model": str(checkpoint), "root": root, "out": folder, "progress": False, "trust": False}
    return audit_by(config_of(audit.config, leave=HERE, **own))


def compare(stored: Audit, again: Audit) -> Changed:
    """How the predictions of an audit differ from the stored ones, for the images that both have. A row that only one
    of them has, since an earlier attack broke the image in the other, differs too."""
    before, after = (_predictions(audit) for audit in (stored, again))
    seen = after.index.get_level_values("index").unique()
    before = before[before.index.get_level_values("index").isin(seen)]
    both = pd.concat([before, after], axis=1, keys=["before", "after"])
    differing = both[both["before"] != both["after"]].index.get_level_values("attack")
    return Changed(len(both), {name: int((differing == name).sum()) for name in stored.names})


def _predictions(audit: Audit) -> pd.Series[Any]:
    found: pd.Series[Any] = audit.records.frame.set_index(["attack", "index"])["prediction"]
    return found


def about(audit: Audit, folder: str) -> dict[str, Any]:
    """What the index says of an audit."""
    found, meta = audit.verdict(), audit.records.meta
    clean = audit.rows(CLEAN)
    return {
        "folder": folder,
        "attacks": asked_for(audit),
        "data": audit.config["data"]["name"],
        "images": len(clean),
        "norm": meta.norm,
        "eps": meta.eps,
        "clean": round(float(clean.correct.mean()), 6),
        "average": round(found.average, 6),
        "worst": round(found.accuracy, 6),
        "worst_low": round(found.low, 6),
        "worst_high": round(found.high, 6),
        "worst_classes": list(found.worst),
        "seconds": round(seconds(audit), 1),
    }


def asked_for(audit: Audit) -> list[str]:
    """The attacks as they were asked for: a suite by its name."""
    return list(audit.config.get("command", {}).get("attack") or audit.attacks)


def seconds(audit: Audit) -> float:
    """How long the attacks took."""
    return float(sum(own.get("seconds", 0.0) for own in audit.timing.get("attacks", {}).values()))


def folder_name(audit: Audit, taken: Collection[str]) -> str:
    """The folder of an audit in the zoo, by its attacks."""
    name = "+".join(map(safe_name, asked_for(audit)))[:60]
    alike = [other for other in taken if other == name or other.rpartition("-")[0] == name]
    return f"{name}-{len(alike) + 1}" if alike else name
