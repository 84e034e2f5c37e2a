"""A trained model repaired on the images that its training held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classwise.core.threat import Norm
from classwise.repairing.repair import repair
from classwise.studies.runner.work import Environment
from classwise.training.prepare import examples, split_off
from classwise.training.recipe import load

_GLANCE = 20  # test images of each class for the repair's own before and after; the study audits the repaired model


def repaired(
    folder: Path,
    environment: Environment,
    *,
    model: str,
    recipe: str,
    changes: Sequence[str],
    attack: str | None,
    keep_average: float | None,
    eps: str | float,
    norm: Norm = "linf",
) -> None:
    """Fit a bias on all held-out images of the recipe, which the model has not been trained on and which chose its
    epoch, and leave best.pt."""
    chosen = load(recipe, changes)
    everything = examples(chosen, environment.root, environment.download, None)
    _, held_out = split_off(chosen, everything)
    repair(
        model, chosen.data.name, attack, eps, norm=norm, per_class=_GLANCE,
        calibrate=held_out, keep_average=keep_average, out=folder, **environment.arguments,
    )  # fmt: skip
