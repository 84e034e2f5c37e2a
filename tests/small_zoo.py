"""A training that never ran, and a zoo with its model: files as a training leaves them, made by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import classwise as cw
from classwise.auditing.fingerprints import fingerprint_model
from classwise.core.run_config import write_config
from classwise.core.run_folder import TrainingFolder
from classwise.models.checkpoint import save_checkpoint
from classwise.training import recipe
from classwise.zoo import adding

NAME = "digits/resnet2/trades-0"
#: A recipe whose model is made at once.
CHANGES = ("model.spec=resnet:width=2,blocks=[1]", "train.epochs=2", "data.validation=4")


def made_training(folder: Path, *changes: str, weights_seed: int = 0) -> Path:
    """The run folder of desk/digits/trades with these changes, with random weights and state to resume from."""
    chosen = recipe.load("desk/digits/trades", (*CHANGES, *changes))
    run, spec = TrainingFolder(folder), chosen.model.spec
    model = cw.load_model(spec, num_classes=10, in_channels=1, seed=weights_seed)
    training = {"method": "{}", "epoch": 2, "step": 0, "threat": {"norm": "linf", "eps": chosen.threat.eps}}
    save_checkpoint(run.best, model, spec, 10, 1, training={**training, "state": {"a": 1.0}})
    save_checkpoint(run.last, model, spec, 10, 1, training={**training, "stopped": None})
    starts = fingerprint_model(model) if chosen.model.weights is None else _fingerprint(Path(chosen.model.weights))
    marks = {"data": "d" * 64, "weights": starts}
    write_config(
        run.config_file, {**chosen.settings(), "fingerprint": marks, "run": {"root": "/somewhere", "given": []}}
    )
    run.write_history(pd.DataFrame({"epoch": [1, 2], "robust": [0.1, 0.2], "seconds": [90.0, 90.0], "best_epoch": 2}))
    return folder


def made_zoo(folder: Path) -> Path:
    """A zoo with one model, without audits."""
    adding.add(made_training(folder / "run"), NAME, folder / "zoo")
    return folder / "zoo"


def _fingerprint(checkpoint: Path) -> str:
    return fingerprint_model(cw.load_model(checkpoint))
