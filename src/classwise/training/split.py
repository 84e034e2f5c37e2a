"""Which examples train, and which are held out of training for validation."""

from __future__ import annotations

import numpy as np

from classwise.core.errors import UserError
from classwise.data.images import Images


def hold_out(images: Images, per_class: int, which: str = "last", seed: int = 0) -> tuple[Images, Images | None]:
    """(training, validation): `per_class` examples of every class held out, the last, the first or random ones."""
    if not per_class:
        return images, None
    held = np.zeros(len(images), bool)
    shuffled = np.random.default_rng(seed).permutation(len(images))
    for label in np.unique(images.labels).tolist():
        members = np.flatnonzero(images.labels == label)
        if which == "random":
            members = shuffled[images.labels[shuffled] == label]
        if len(members) <= per_class:
            raise UserError(
                f"data.validation = {per_class} would leave no {images.class_names[label]!r} to train on: "
                f"{images.name} has {len(members)} of it. Hold out fewer."
            )
        held[members[:per_class] if which == "first" else members[-per_class:]] = True
    return images.take(np.flatnonzero(~held)), images.take(np.flatnonzero(held))
