"""Which images a change is fitted on, and which judge it."""

from __future__ import annotations

import numpy as np

from classwise.core.errors import UserError
from classwise.data.images import Images

_STREAM = 17  # of the random order, so that it is not the one that `Images.subset` draws by


def split(images: Images, judge_share: float, seed: int) -> tuple[Images, Images]:
    """(calibration, judging): of every class `judge_share` of its images, drawn by the seed, are held back to judge.

    Both have at least one image of every class that has two; a class's only image is fitted on.
    """
    held = np.zeros(len(images), bool)
    order = np.random.default_rng([seed, _STREAM]).permutation(len(images))
    for label in np.unique(images.labels).tolist():
        members = order[images.labels[order] == label]
        count = min(max(round(judge_share * len(members)), 1), len(members) - 1)
        held[members[:count]] = True
    if not held.any():
        raise UserError(
            f"{images.name} has no class with two images, and a repair fits on some and judges on others. Give more "
            "images (--per-class, --limit)."
        )
    return images.take(np.flatnonzero(~held)), images.take(np.flatnonzero(held))
