"""Repaired models in the zoo: which model was repaired, how, and by which job of a study.

The folder of a repaired model holds config.toml as the repair left it, but for what is of one machine, and best.pt; its
entry.toml says which model was repaired (`of`), what was changed, and what a study asked for (`job`), if one did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from classwise.core.errors import UserError
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_config import plain
from classwise.models.zoo import Entry, Zoo

#: What a repaired model has in common with the one that was repaired.
KEPT = ("data", "network", "method", "norm", "eps", "epochs", "seed")
_OF_RUN = ("command", "run")  # parts of config.toml that are of one machine
_IMPLIED = ("model", "recipe", "changes")  # arguments of a job that `of` implies


def with_weights(fingerprint: str, known: Zoo) -> Entry | None:
    """The model of the zoo with these weights, as they are stored or as they were trained."""
    for entry in known.entries.values():
        if fingerprint in (entry.about["fingerprint"], entry.about.get("trained_fingerprint")):
            return entry
    return None


def origin(run: RepairFolder, known: Zoo) -> Entry:
    """The model that was repaired; an error where the zoo does not have it, or where the repair left no checkpoint."""
    model = run.config()["model"]
    if not run.best.is_file():
        raise UserError(f"{run.path} has no {run.best.name}: the zoo takes repaired networks, not black boxes.")
    found = with_weights(model["fingerprint"], known)
    if found is None:
        raise UserError(f"this repair is of {model['spec']}, which is not in the zoo: add that model first.")
    return found


def result(run: RepairFolder) -> dict[str, Any]:
    """What the repair found."""
    found: dict[str, Any] = json.loads(run.result_file.read_text(encoding="utf-8"))
    return found


def config(run: RepairFolder, of: Entry) -> dict[str, Any]:
    """The settings of the repair, of the model as the zoo names it."""
    tree = {part: settings for part, settings in run.config().items() if part not in _OF_RUN}
    tree["repair"] = {**tree["repair"], "model": of.spec}
    tree["model"] = {**tree["model"], "spec": of.spec}
    return tree


def about(run: RepairFolder, of: Entry) -> dict[str, Any]:
    """What entry.toml says of the repair."""
    settings = run.config()["repair"]
    made: dict[str, Any] = {"of": of.name, "knob": settings["knob"], "goal": settings["goal"]}
    made |= {key: settings[key] for key in ("keep_average", "keep_each") if settings.get(key) is not None}
    made |= {key: settings[key] for key in ("attacks", "calibration_images", "seed")}
    made["bias"] = {name: round(value, 6) for name, value in result(run)["bias"].items()}
    if run.job_file.is_file():
        job = json.loads(run.job_file.read_text(encoding="utf-8"))["job"]
        made["job"] = asked(job["function"], job["arguments"])
    return made


def asked(function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a job of a study asks for besides the model, as the index has it."""
    given = {name: value for name, value in arguments.items() if name not in _IMPLIED and value is not None}
    found: dict[str, Any] = plain({"function": function, **given})
    return found


def find(of: str, wanted: Mapping[str, Any], zoo: Zoo) -> Entry | None:
    """The first repaired model, by name, that the same job made of the model `of`, and whose files are at hand."""
    for name in sorted(zoo.entries):
        own = zoo.entries[name].about.get("repaired", {})
        if own.get("of") == of and own.get("job") == wanted and zoo.holds(name):
            return zoo.entries[name]
    return None
