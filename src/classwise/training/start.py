"""How a training begins: its run folder opened, its checkpoint read, and every process in the same state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.core.errors import UserError
from classwise.core.run_config import check_same, plain
from classwise.data.images import Images
from classwise.training import recipe
from classwise.training.loop import Training
from classwise.training.state import TrainingState


def open_folder(
    training: Training, images: Images, root: str | Path | None, given: Mapping[Any, Any], overwrite: bool
) -> None:
    """Create the run folder of a training, or check that the one there is belongs to the same training.

    given: what Python gave as an object, by its name in the recipe, or None.
    """
    chosen, network, folder = training.train_step.recipe, training.train_step.model, training.checkpoints.folder
    marks = {"data": fingerprint_data(images)}
    if given["model"] is None:  # a given module may start with new random weights each time; the checkpoint's count
        marks["weights"] = fingerprint_model(network)
    marks |= {name: fingerprint_model(teacher) for name, teacher in training.train_step.teachers.items()}
    config = {**chosen.settings(), "fingerprint": marks, "run": _run_settings(root, given)}
    stored = folder.open_or_create(config, overwrite)
    _check_same(folder.path, stored, config)
    training.checkpoints.finish()


def require_same_start(training: Training, images: Images) -> None:
    """Raise where the processes were started with different recipes or images."""
    chosen = plain(training.train_step.recipe.settings())
    settings = {f"{part}.{key}": value for part, own in chosen.items() for key, value in own.items()}
    labels = hashlib.sha256(np.ascontiguousarray(images.labels, np.int64).tobytes()).hexdigest()[:16]
    alike = {**settings, "number of images": len(images), "digest of the labels": labels}
    training.train_step.processes.require_same(alike, "recipe and images")


def resume(training: Training, start: TrainingState) -> TrainingState:
    """The state in the run folder's checkpoint, its weights loaded; without a checkpoint, the start. The first process
    reads; all others have its weights and its state, whatever their own folders hold."""
    train_step, checkpoints, processes = training.train_step, training.checkpoints, training.train_step.processes
    for network in (train_step.model, *train_step.teachers.values()):
        processes.same_model(network)
    with processes.failing_together():
        stored = checkpoints.read_last() if processes.first else None
    stored = processes.of_first(stored)
    if stored is None:
        start.method_state = processes.same_state(start.method_state)
        return start
    train_step.load_state_dict(stored)
    state = TrainingState.from_state_dict(stored, train_step.device)
    with processes.failing_together():
        if processes.first:
            checkpoints.write_history(state)
            checkpoints.rebuild_best(state)
    return state


def _run_settings(root: str | Path | None, given: Mapping[Any, Any]) -> dict[str, Any]:
    """What a run folder stores besides the recipe, so that it can be resumed and audited without repeating it."""
    names = [name for name, value in given.items() if value is not None]
    return {"root": None if root is None else str(Path(root).expanduser().resolve()), "given": names}


def _check_same(folder: Path, stored: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise, with what differs, where a folder was made by another recipe, or on other images or weights."""
    check_same(folder, recipe.with_defaults(recipe.settings_of(stored)), recipe.settings_of(config))
    old, new = stored.get("fingerprint", {}), config["fingerprint"]
    name, spec, weights = config["data"]["name"], config["model"]["spec"], config["model"]["weights"]
    others = {
        "data": "the images given as data" if "data" in config["run"]["given"] else f"the images of {name}",
        "weights": f"the weights in {weights}" if weights else f"the first weights of {spec}",
        "teacher": "the weights of the teacher",
        "teacher_clean": "the weights of teacher_clean",
    }
    for key, what in others.items():
        if key in old and key in new and old[key][:16] != new[key][:16]:
            raise UserError(
                f"{folder} was made with other settings: {what} are not those it was made with; the file or folder "
                "has changed, or --root names another one. Choose another --out, or --overwrite to train from scratch."
            )
