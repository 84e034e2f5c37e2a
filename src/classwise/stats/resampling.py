"""Images drawn again: the class accuracies that other draws of the same number of images would give (Efron 1979)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from classwise.stats.intervals import Array, ratio


def class_accuracies(right: Array, label: Array, classes: int, draws: int, seed: int = 0) -> Array:
    """Accuracies of every class for each draw of images, of shape (draws, runs, classes).

    right: whether each run is right about each image, (images, runs); NaN where it did not see it. The images of a
    class are drawn with replacement, as many as there are and the same ones for every run. A class without images in a
    draw is NaN there.
    """
    found = np.full((draws, right.shape[1], classes), np.nan)
    for which in np.unique(label).tolist():
        own = right[label == which]
        places = _picked(len(own), which, draws, seed) + len(own) * np.arange(draws)[:, None]
        times = np.bincount(places.ravel(), minlength=draws * len(own)).reshape(draws, len(own)).astype(np.float64)
        found[:, :, which] = ratio(times @ np.nan_to_num(own), times @ np.isfinite(own))
    return found


def rows(label: Array, draws: int, seed: int = 0) -> Iterator[Array]:
    """For each draw the images in it, as row numbers: as many of each class as there are."""
    own = [(np.flatnonzero(label == which), which) for which in np.unique(label).tolist()]
    picked = [places[_picked(len(places), which, draws, seed)] for places, which in own]
    return iter(np.concatenate(picked, axis=1))


def _picked(size: int, which: int, draws: int, seed: int) -> Array:
    return np.random.default_rng([seed, which]).integers(size, size=(draws, size))
